# SPDX-License-Identifier: Apache-2.0
"""Single-message transforms of Kafka Connect, which change the records of ingresses and egresses.

The modules, each of which uses only modules above it:

- ``data``: Connect's model of values and schemas, ``transform``: the interface of transforms
- ``java_numbers``, ``java_dates``: numbers and dates as Java reads and writes them
- ``paths``, ``field_transforms``, ``nesting``, ``casting``, ``timestamps``, ``routers``: the transforms
- ``connect_json``, ``avro_data``: schemas and values in JSON and Avro
- ``codecs``: the encodings of records, ``chain``: the transforms of a topic
"""
