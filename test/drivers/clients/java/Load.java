import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Connector/J, by itself (driver "connectorj") and in HikariCP's pool ("hikari"): load FILE. The contract with the test is in change_test.go.
 *
 * <p>A step is the call that threw. What throws behind commit(), such as the setAutoCommit(true) of a connection that goes back to its pool, says
 * nothing of the row: it is told as "late".
 */
public class Load {
  static volatile boolean stop;
  static String driver, url, user, password;
  static HikariDataSource pool;

  /** One worker's session: with HikariCP one per use, without it one until it fails. */
  static class Worker extends Thread {
    final int first;
    Connection kept;
    String step;

    Worker(int first) {
      this.first = first;
    }

    Connection open() throws SQLException {
      step = "connect";
      if (pool != null) {
        return pool.getConnection();
      }
      if (kept == null || kept.isClosed()) {
        kept = DriverManager.getConnection(url, user, password);
      }
      return kept;
    }

    /** Gives a connection back as an application does, with what that sends. */
    void close(Connection c, boolean transaction) throws SQLException {
      if (pool != null) {
        step = "close";
        c.close();
      } else if (transaction && !c.isClosed()) {
        step = "setAutoCommit(true)";
        c.setAutoCommit(true);
      }
    }

    void update(Connection c, String text) throws SQLException {
      try (var s = c.createStatement()) {
        s.executeUpdate(text);
      }
    }

    /** Makes the row of one attempt. When it returns, the row was acknowledged. */
    void write(Connection c, long n, int a) throws SQLException {
      String insert = "INSERT INTO drivers.load_" + driver + " (n, a) VALUES (" + n + ", " + a + ")";
      step = "insert";
      switch ((int) (n % 3)) {
        case 1:
          step = "setAutoCommit(false)";
          c.setAutoCommit(false);
          step = "insert";
          update(c, insert);
          step = "update";
          update(c, "UPDATE drivers.count_" + driver + " SET v = v + 1");
          step = "commit";
          c.commit();
          break;
        case 2:
          update(c, insert);
          break;
        default:
          try (PreparedStatement s = c.prepareStatement("INSERT INTO drivers.load_" + driver + " (n, a) VALUES (?, ?)")) {
            s.setLong(1, n);
            s.setInt(2, a);
            s.executeUpdate();
          }
      }
    }

    boolean there(Connection c, long n, int a) throws SQLException {
      step = "read";
      try (PreparedStatement s = c.prepareStatement("SELECT COUNT(*) FROM drivers.load_" + driver + " WHERE n = ? AND a = ?")) {
        s.setLong(1, n);
        s.setInt(2, a);
        try (ResultSet r = s.executeQuery()) {
          r.next();
          return r.getInt(1) == 1;
        }
      }
    }

    /** One attempt; true: it is to be repeated. */
    boolean attempt(long n, int a) {
      boolean transaction = n % 3 == 1, acknowledged = false, again = false;
      Connection c = null;
      try {
        c = open();
        write(c, n, a);
        acknowledged = true;
        say("ack " + n + " " + a);
        if (!there(c, n, a)) {
          say("miss " + n + " " + a);
        }
        if (transaction) { // the read has begun another one
          step = "commit";
          c.commit();
        }
      } catch (SQLException e) {
        say((acknowledged ? "late " : "err " + n + " " + a + " ") + told(e));
        again = !acknowledged && "40001".equals(e.getSQLState());
        if (transaction && c != null) {
          try {
            c.rollback();
          } catch (SQLException ignored) {
            // the transaction is gone
          }
        }
      }
      try {
        if (c != null) {
          close(c, transaction);
        }
      } catch (SQLException e) {
        say("late " + told(e));
      }
      return again;
    }

    String told(SQLException e) {
      return step + " " + e.getErrorCode() + " " + (e.getSQLState() == null ? "-" : e.getSQLState()) + " " + e.toString().replace("\n", " ");
    }

    @Override
    public void run() {
      for (long n = first; !stop; n += 3) {
        for (int a = 1; attempt(n, a) && !stop; ) {
          a++;
        }
        try {
          Thread.sleep(50);
        } catch (InterruptedException e) {
          return;
        }
      }
    }
  }

  static synchronized void say(String line) {
    System.out.println(line);
  }

  static String field(String json, String name) {
    Matcher m = Pattern.compile("\"" + name + "\":\"?([^\",}]*)").matcher(json);
    if (!m.find()) {
      throw new IllegalArgumentException("no " + name + " in the settings");
    }
    return m.group(1);
  }

  public static void main(String[] args) throws Exception {
    String json = Files.readString(Path.of(args[1]));
    driver = field(json, "driver");
    user = field(json, "user");
    password = field(json, "password");
    url = "jdbc:mysql://" + field(json, "host") + ":" + field(json, "port")
        + "/?useServerPrepStmts=true&cachePrepStmts=true&connectTimeout=40000&socketTimeout=40000";
    if (driver.equals("hikari")) {
      HikariConfig h = new HikariConfig();
      h.setJdbcUrl(url);
      h.setUsername(user);
      h.setPassword(password);
      h.setMaximumPoolSize(3);
      h.setConnectionTimeout(40000);
      pool = new HikariDataSource(h);
    }
    List<Worker> workers = new ArrayList<>();
    for (int i = 1; i <= 3; i++) {
      workers.add(new Worker(i));
    }
    for (Worker w : workers) {
      w.start();
    }
    while (System.in.read() >= 0) {}
    stop = true;
    for (Worker w : workers) {
      w.join();
    }
    say("done");
    System.exit(0);
  }
}
