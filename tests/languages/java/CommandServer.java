// SPDX-License-Identifier: Apache-2.0

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.Executors;
import org.apache.flink.statefun.sdk.java.Address;
import org.apache.flink.statefun.sdk.java.Context;
import org.apache.flink.statefun.sdk.java.StatefulFunction;
import org.apache.flink.statefun.sdk.java.StatefulFunctionSpec;
import org.apache.flink.statefun.sdk.java.StatefulFunctions;
import org.apache.flink.statefun.sdk.java.TypeName;
import org.apache.flink.statefun.sdk.java.ValueSpec;
import org.apache.flink.statefun.sdk.java.handler.RequestReplyHandler;
import org.apache.flink.statefun.sdk.java.io.KafkaEgressMessage;
import org.apache.flink.statefun.sdk.java.message.Message;
import org.apache.flink.statefun.sdk.java.message.MessageBuilder;
import org.apache.flink.statefun.sdk.java.slice.Slices;
import org.apache.flink.statefun.sdk.java.types.SimpleType;
import org.apache.flink.statefun.sdk.java.types.Type;

/** One function of the Java SDK that does what its messages say: {@code CommandServer PORT}. */
public final class CommandServer implements StatefulFunction {

  private static final ObjectMapper JSON = new ObjectMapper();

  private static final Type<JsonNode> COMMANDS =
      SimpleType.simpleImmutableTypeFrom(
          TypeName.typeNameFromString("com.example.languages/commands"),
          JSON::writeValueAsBytes,
          JSON::readTree);

  private static final ValueSpec<Long> TOTAL = ValueSpec.named("total").withLongType();
  private static final ValueSpec<String> NOTE =
      ValueSpec.named("note").thatExpireAfterWrite(Duration.ofHours(1)).withUtf8StringType();

  private static final TypeName OUT = TypeName.typeNameFromString("com.example.languages/out");
  private static final String TOPIC = System.getenv().getOrDefault("RESULTS_TOPIC", "results");

  @Override
  public CompletableFuture<Void> apply(Context context, Message message) throws IOException {
    for (JsonNode command : message.as(COMMANDS)) {
      execute(context, command);
    }
    return context.done();
  }

  private static void execute(Context context, JsonNode command) throws IOException {
    var storage = context.storage();
    switch (text(command, "do")) {
      case "add" -> {
        long total = storage.get(TOTAL).orElse(0L) + command.required("by").longValue();
        storage.set(TOTAL, total);
        report(context, record(context, command).put("total", total));
      }
      case "send" -> context.send(message(command));
      case "after" -> {
        var delay = Duration.ofMillis(command.required("milliseconds").longValue());
        if (command.has("token")) {
          context.sendAfter(delay, text(command, "token"), message(command));
        } else {
          context.sendAfter(delay, message(command));
        }
      }
      case "cancel" -> context.cancelDelayedMessage(text(command, "token"));
      case "remember" -> storage.set(NOTE, text(command, "text"));
      case "forget" -> storage.remove(NOTE);
      case "recall" ->
          report(context, record(context, command).put("note", storage.get(NOTE).orElse(null)));
      case "fail" -> throw new IllegalStateException(text(command, "text"));
      default -> throw new IllegalArgumentException("unknown command: " + command);
    }
  }

  private static String text(JsonNode command, String name) {
    return command.required(name).textValue();
  }

  private static Message message(JsonNode command) {
    var type = TypeName.typeNameFromString(text(command, "to"));
    return MessageBuilder.forAddress(type, text(command, "id"))
        .withCustomType(COMMANDS, command.required("commands"))
        .build();
  }

  private static ObjectNode record(Context context, JsonNode command) {
    Address self = context.self();
    return JSON.createObjectNode()
        .put("name", text(command, "name"))
        .put("address", self.type().asTypeNameString() + "/" + self.id());
  }

  private static void report(Context context, ObjectNode record) throws IOException {
    context.send(
        KafkaEgressMessage.forEgress(OUT)
            .withTopic(TOPIC)
            .withUtf8Key(context.self().id())
            .withValue(JSON.writeValueAsBytes(record))
            .build());
  }

  private static void answer(HttpExchange exchange, RequestReplyHandler handler)
      throws IOException {
    try (exchange) {
      var request = Slices.wrap(exchange.getRequestBody().readAllBytes());
      byte[] reply;
      try {
        reply = handler.handle(request).join().toByteArray();
      } catch (CompletionException failure) {
        failure.printStackTrace();
        exchange.sendResponseHeaders(500, -1);
        return;
      }
      exchange.getResponseHeaders().set("Content-Type", "application/octet-stream");
      exchange.sendResponseHeaders(200, reply.length);
      exchange.getResponseBody().write(reply);
    }
  }

  public static void main(String[] arguments) throws IOException {
    // The head and the body of a reply are two packets: without this, the second waits 40 ms.
    System.setProperty("sun.net.httpserver.nodelay", "true");
    var function =
        StatefulFunctionSpec.builder(TypeName.typeNameFromString("com.example.languages/java"))
            .withValueSpecs(TOTAL, NOTE)
            .withSupplier(CommandServer::new)
            .build();
    var handler = new StatefulFunctions().withStatefulFunction(function).requestReplyHandler();
    var port = Integer.parseInt(arguments[0]);
    var server =
        HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), port), 0);
    server.createContext("/", exchange -> answer(exchange, handler));
    server.setExecutor(Executors.newFixedThreadPool(4));
    server.start();
    System.out.println("ready");
  }
}
