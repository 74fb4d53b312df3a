# SPDX-License-Identifier: Apache-2.0
"""What users write functions against; imports neither Spark, nor a Kafka client, nor YAML."""
