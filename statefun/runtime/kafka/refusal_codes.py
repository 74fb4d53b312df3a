# SPDX-License-Identifier: Apache-2.0
"""The error codes with which a cluster refuses a client, or refuses records until a person changes something."""

from __future__ import annotations

from confluent_kafka import KafkaError as ClientError

UNKNOWN_PLACES = {
    ClientError._UNKNOWN_PARTITION,  # noqa: SLF001 - how the client names its own codes
    ClientError._UNKNOWN_TOPIC,  # noqa: SLF001 - as above
    ClientError.UNKNOWN_TOPIC_OR_PART,
}
"""Error codes for topics and partitions that do not exist, or that a broker does not know yet."""
OF_TOPIC = {ClientError.TOPIC_AUTHORIZATION_FAILED, ClientError.TOPIC_EXCEPTION}
"""Error codes with which a cluster refuses all records of a topic."""
OF_BATCH = {
    ClientError._INVALID_DIFFERENT_RECORD,  # noqa: SLF001 - as above; another record of the batch is invalid
    ClientError.INVALID_MSG,
    ClientError.INVALID_MSG_SIZE,
    ClientError.INVALID_RECORD,
    ClientError.INVALID_TIMESTAMP,
    ClientError.MSG_SIZE_TOO_LARGE,
    ClientError.RECORD_LIST_TOO_LARGE,
}
"""Error codes for a producer's whole batch, which may be caused by a single record."""
OF_RECORDS = UNKNOWN_PLACES | OF_TOPIC | OF_BATCH
"""Error codes for records that the cluster refuses until a person changes the cluster or the egress."""
OF_CLIENTS = {
    ClientError._INVALID_ARG,  # noqa: SLF001 - as above
    ClientError.CLUSTER_AUTHORIZATION_FAILED,
    ClientError.INVALID_REQUIRED_ACKS,
    ClientError.INVALID_TRANSACTION_TIMEOUT,
    ClientError.POLICY_VIOLATION,
    ClientError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
"""Error codes for the client itself, which the cluster returns until a person changes cluster or egress."""
