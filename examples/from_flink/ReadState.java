// SPDX-License-Identifier: Apache-2.0
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.state.hashmap.HashMapStateBackend;
import org.apache.flink.state.api.SavepointReader;
import org.apache.flink.state.api.functions.KeyedStateReaderFunction;
import org.apache.flink.statefun.flink.core.types.remote.RemoteValueTypeInfo;
import org.apache.flink.statefun.sdk.TypeName;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.util.Collector;

/** Writes the values of one function in a savepoint to a file: a JSON document for each address, all values in base64. */
public final class ReadState {
  /** Arguments: the savepoint, the new file, the function, and NAME=TYPENAME for each of its values. */
  public static void main(String... args) throws Exception {
    Map<String, String> types = new LinkedHashMap<>();
    for (int i = 3; i < args.length; i++) {
      String[] parts = args[i].split("=", 2);
      types.put(parts[0], parts[1]);
    }
    StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(1);
    SavepointReader savepoint = SavepointReader.read(env, args[0], new HashMapStateBackend());
    savepoint
        .readKeyedState("functions_uid1", new Reader(args[2], types), Types.STRING, Types.STRING)
        .writeAsText(args[1]);
    env.execute();
  }

  private static final class Reader extends KeyedStateReaderFunction<String, String> {
    private final String function;
    private final Map<String, String> types;
    private transient Map<String, ValueState<byte[]>> values;

    Reader(String function, Map<String, String> types) {
      this.function = function;
      this.types = types;
    }

    @Override
    public void open(Configuration configuration) {
      values = new LinkedHashMap<>();
      types.forEach(
          (name, type) -> {
            String state = function.replace('/', '.') + "." + name;
            RemoteValueTypeInfo info = new RemoteValueTypeInfo(TypeName.parseFrom(type));
            values.put(
                name, getRuntimeContext().getState(new ValueStateDescriptor<>(state, info)));
          });
    }

    @Override
    public void readKey(String id, Context context, Collector<String> out) throws Exception {
      StringBuilder line = new StringBuilder("{\"id\": \"" + base64(id.getBytes("UTF-8")) + "\"");
      boolean isEmpty = true;
      for (Map.Entry<String, ValueState<byte[]>> each : values.entrySet()) {
        byte[] content = each.getValue().value();
        if (content != null) {
          isEmpty = false;
          line.append(", \"" + each.getKey() + "\": \"" + base64(content) + "\"");
        }
      }
      if (!isEmpty) {
        out.collect(line + "}");
      }
    }

    private static String base64(byte[] content) {
      return Base64.getEncoder().encodeToString(content);
    }
  }
}
