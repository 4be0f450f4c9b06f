import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.FileReader;
import java.util.Properties;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * Runs Debezium embedded, with the properties of the file that is given, until standard input ends. It says "change TABLE ID OP V GTID" for each row, with
 * its columns id and v, before the offset moves past it ("-" for a GTID in a snapshot), and "stopped WHY" in the end.
 */
public class Changes {
  static final ObjectMapper MAPPER = new ObjectMapper();

  static synchronized void say(String line) {
    System.out.println(line);
    System.out.flush();
  }

  static void tell(ChangeEvent<String, String> e) throws Exception {
    if (e.value() == null) {
      return; // the tombstone behind a DELETE
    }
    JsonNode value = MAPPER.readTree(e.value());
    if (!value.has("op") || !value.has("source")) {
      return; // a heartbeat
    }
    JsonNode source = value.get("source");
    JsonNode row = value.get(value.get("after").isNull() ? "before" : "after");
    String op = value.get("op").asText();
    say("change " + source.get("db").asText() + "." + source.get("table").asText() + " " + MAPPER.readTree(e.key()).get("id").asLong() + " " + op + " "
        + row.get("v").asLong() + " " + (op.equals("r") ? "-" : source.get("gtid").asText()));
  }

  public static void main(String[] args) throws Exception {
    Properties settings = new Properties();
    try (FileReader in = new FileReader(args[0])) {
      settings.load(in);
    }
    DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class).using(settings)
        .using((success, message, error) -> {
          say("stopped " + (success ? "in order" : (message + " " + error).replace("\n", " ")));
          System.exit(success ? 0 : 1);
        })
        .notifying(e -> {
          try {
            tell(e);
          } catch (Exception why) {
            throw new IllegalStateException(e.value(), why);
          }
        })
        .build();
    ExecutorService runs = Executors.newSingleThreadExecutor();
    runs.execute(engine);
    while (System.in.read() >= 0) {
      // until it ends
    }
    engine.close();
    runs.shutdown();
  }
}
