# SPDX-License-Identifier: Apache-2.0
"""The API that users write functions against; imports neither Spark, nor a Kafka client, nor YAML."""
