// SPDX-License-Identifier: Apache-2.0
// A server of Kinesis's protocol, on the port of its argument; it forgets everything when it ends.
"use strict";

const path = require.resolve("kinesalite/actions/getShardIterator");
const db = require("kinesalite/db");
const getShardIterator = require(path);

// kinesalite does not answer a request for the records since a time if there is none yet. Say
// instead behind which record that is.
require.cache[path].exports = (store, data, cb) => {
  if (data.ShardIteratorType !== "AT_TIMESTAMP" || data.Timestamp * 1000 > Date.now()) {
    return getShardIterator(store, data, cb);
  }
  const { shardIx } = db.resolveShardId(data.ShardId);
  const keys = { gt: db.shardIxToHex(shardIx), lt: db.shardIxToHex(shardIx + 1) };
  db.lazy(store.getStreamDb(data.StreamName).createReadStream(keys), cb).join((items) => {
    const since = items.find((item) => item.value.ApproximateArrivalTimestamp >= data.Timestamp);
    const place = since ? "AT_SEQUENCE_NUMBER" : "AFTER_SEQUENCE_NUMBER";
    const item = since || items[items.length - 1];
    const asked = { StreamName: data.StreamName, ShardId: data.ShardId };
    if (item) {
      asked.ShardIteratorType = place;
      asked.StartingSequenceNumber = item.key.split("/")[1];
    } else {
      asked.ShardIteratorType = "TRIM_HORIZON";
    }
    getShardIterator(store, asked, cb);
  });
};

// A client that is killed in the middle of a request is no reason to end.
process.on("uncaughtException", (error) => console.error(error));

const kinesalite = require("kinesalite");

const server = kinesalite({ createStreamMs: 0, deleteStreamMs: 0, updateStreamMs: 0, shardLimit: 1000 });
server.listen(Number(process.argv[2]), "127.0.0.1", () => console.log("ready"));
