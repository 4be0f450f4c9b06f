import java.io.File;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.List;
import javax.sql.DataSource;
import org.apache.shardingsphere.driver.api.yaml.YamlShardingSphereDataSourceFactory;

/**
 * Writes rows through ShardingSphere-JDBC, with settings of the file that is given, until standard input ends; then reads them all in one statement
 * for all shards. It says "ack ID" for each row whose INSERT was answered, "err ID WHY" for others, "row ID" for each row at the end, and
 * "count N" for what COUNT(*) says.
 */
public class Sharded {
  static volatile boolean stop;

  static synchronized void say(String line) {
    System.out.println(line);
    System.out.flush();
  }

  /** Ids from first on, in steps; every second one in a transaction of its own. */
  static void write(DataSource pool, long first, long step) {
    for (long id = first; !stop; id += step) {
      try (Connection c = pool.getConnection()) {
        boolean transaction = id / step % 2 == 1;
        if (transaction) {
          c.setAutoCommit(false);
        }
        try (PreparedStatement s = c.prepareStatement("INSERT INTO orders (id, item) VALUES (?, ?)")) {
          s.setLong(1, id);
          s.setString(2, "item " + id);
          s.executeUpdate();
        }
        if (transaction) {
          c.commit();
        }
        say("ack " + id);
      } catch (SQLException | RuntimeException e) {
        say("err " + id + " " + e.toString().replace("\n", " "));
      }
    }
  }

  public static void main(String[] args) throws Exception {
    DataSource pool = YamlShardingSphereDataSourceFactory.createDataSource(new File(args[0]));
    say("ready");
    List<Thread> writers = new ArrayList<>();
    for (long i = 1; i <= 4; i++) {
      long first = i;
      Thread t = new Thread(() -> write(pool, first, 4));
      t.start();
      writers.add(t);
    }
    while (System.in.read() >= 0) {
      // until it ends
    }
    stop = true;
    for (Thread t : writers) {
      t.join();
    }
    try (Connection c = pool.getConnection(); Statement s = c.createStatement()) {
      try (ResultSet r = s.executeQuery("SELECT id FROM orders ORDER BY id")) {
        while (r.next()) {
          say("row " + r.getLong(1));
        }
      }
      try (ResultSet r = s.executeQuery("SELECT COUNT(*) FROM orders")) {
        r.next();
        say("count " + r.getLong(1));
      }
    }
    System.exit(0);
  }
}
