// SPDX-License-Identifier: Apache-2.0
// One function of the JavaScript SDK that does what its messages say: node server.js PORT
"use strict";

const http = require("node:http");
const { StateFun, kafkaEgressMessage, messageBuilder } = require("apache-flink-statefun");

const TOPIC = process.env.RESULTS_TOPIC ?? "results";

const COMMANDS = StateFun.jsonType("com.example.languages/commands");

// The SDK has no long: Protobuf's sfixed64 of field 1, which leaves zero out.
const LONG = StateFun.customType("io.statefun.types/long", encodeLong, decodeLong);

function encodeLong(number) {
    if (number === 0) {
        return Buffer.alloc(0);
    }
    const bytes = Buffer.from([0x09, 0, 0, 0, 0, 0, 0, 0, 0]);
    bytes.writeBigInt64LE(BigInt(number), 1);
    return bytes;
}

function decodeLong(bytes) {
    return bytes.length === 0 ? 0 : Number(bytes.readBigInt64LE(1));
}

const execute = {
    add(context, { by, name }) {
        const total = (context.storage.total ?? 0) + by;
        context.storage.total = total;
        report(context, { name, total });
    },
    send(context, command) {
        context.send(message(command));
    },
    after(context, command) {
        context.sendAfter(command.milliseconds, message(command), command.token);
    },
    cancel(context, { token }) {
        context.cancelDelayedMessage(token);
    },
    remember(context, { text }) {
        context.storage.note = text;
    },
    forget(context) {
        context.storage.note = null;
    },
    recall(context, { name }) {
        report(context, { name, note: context.storage.note });
    },
    fail(_, { text }) {
        throw new Error(text);
    },
};

function message({ to, id, commands }) {
    return messageBuilder({ typename: to, id, value: commands, valueType: COMMANDS });
}

function report(context, { name, ...facts }) {
    const { typename, id } = context.self;
    const value = JSON.stringify({ name, address: `${typename}/${id}`, ...facts });
    context.send(
        kafkaEgressMessage({ typename: "com.example.languages/out", topic: TOPIC, key: id, value }),
    );
}

const functions = new StateFun();

functions.bind({
    typename: "com.example.languages/javascript",
    specs: [
        { name: "total", type: LONG },
        { name: "note", type: StateFun.stringType(), expireAfterWrite: 60 * 60 * 1000 },
    ],
    fn(context, message) {
        for (const command of message.as(COMMANDS)) {
            execute[command.do](context, command);
        }
    },
});

const server = http.createServer(functions.handler());
server.listen(Number(process.argv[2]), "127.0.0.1", () => console.log("ready"));
