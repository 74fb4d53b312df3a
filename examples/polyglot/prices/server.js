// SPDX-License-Identifier: Apache-2.0
// The prices of items, as a function of the JavaScript SDK: node server.js PORT
"use strict";

const http = require("node:http");
const { StateFun, messageBuilder } = require("apache-flink-statefun");

const PRICE = StateFun.jsonType("com.example.prices/Price");
const ASK = StateFun.jsonType("com.example.prices/Ask");
const QUOTE = StateFun.jsonType("com.example.prices/Quote");

const functions = new StateFun();

functions.bind({
    typename: "com.example.prices/price",
    specs: [{ name: "cents", type: StateFun.intType() }],
    fn(context, message) {
        if (message.is(PRICE)) {
            context.storage.cents = message.as(PRICE).cents;
            return;
        }
        const { count } = message.as(ASK);
        const price = context.storage.cents;
        const cents = price === null ? null : count * price;
        const { typename, id } = context.caller;
        const value = { item: context.self.id, cents };
        context.send(messageBuilder({ typename, id, value, valueType: QUOTE }));
    },
});

const server = http.createServer(functions.handler());
server.listen(Number(process.argv[2] ?? 8000), "127.0.0.1", () => console.log("ready"));
