// SPDX-License-Identifier: Apache-2.0

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.transforms.Transformation;

/**
 * Applies Kafka Connect's own transforms to records: one JSON object a line in, and one a line out.
 *
 * <p>A line has the class and options of each transform, and a record whose key and value are JSON with
 * a schema (or null in its place). The answer has the record, or what Connect says is wrong with it.
 */
public final class ConnectTransforms {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final JsonConverter KEYS = converter(true);
  private static final JsonConverter VALUES = converter(false);

  private ConnectTransforms() {}

  public static void main(String[] arguments) throws Exception {
    BufferedReader lines =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      answers.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
    }
  }

  private static ObjectNode answer(JsonNode asked) {
    try {
      SinkRecord record = record(asked.get("record"));
      for (JsonNode each : asked.get("transforms")) {
        record = transform(each).apply(record);
      }
      ObjectNode found = JSON.createObjectNode();
      found.put("topic", record.topic());
      found.set("key", written(KEYS, record.keySchema(), record.key()));
      found.set("value", written(VALUES, record.valueSchema(), record.value()));
      return found;
    } catch (Exception error) {
      return JSON.createObjectNode().put("error", error.toString());
    }
  }

  private static SinkRecord record(JsonNode asked) throws Exception {
    SchemaAndValue key = KEYS.toConnectData("", content(asked.get("key")));
    SchemaAndValue value = VALUES.toConnectData("", content(asked.get("value")));
    return new SinkRecord(
        asked.get("topic").asText(),
        asked.get("partition").asInt(),
        key.schema(),
        key.value(),
        value.schema(),
        value.value(),
        asked.get("offset").asLong(),
        asked.get("timestamp").asLong(),
        TimestampType.CREATE_TIME);
  }

  private static byte[] content(JsonNode asked) throws Exception {
    return asked.isNull() ? null : JSON.writeValueAsBytes(asked);
  }

  @SuppressWarnings("unchecked")
  private static Transformation<SinkRecord> transform(JsonNode asked) throws Exception {
    Transformation<SinkRecord> made =
        (Transformation<SinkRecord>)
            Class.forName(asked.get("type").asText()).getDeclaredConstructor().newInstance();
    Map<String, String> options = new HashMap<>();
    asked.get("options").properties().forEach(e -> options.put(e.getKey(), e.getValue().asText()));
    made.configure(options);
    return made;
  }

  private static JsonNode written(JsonConverter converter, Schema schema, Object value)
      throws Exception {
    byte[] content = converter.fromConnectData("", schema, value);
    return content == null ? JSON.nullNode() : JSON.readTree(content);
  }

  private static JsonConverter converter(boolean isKey) {
    JsonConverter made = new JsonConverter();
    made.configure(Map.of("schemas.enable", "true", "replace.null.with.default", "false"), isKey);
    return made;
  }
}
