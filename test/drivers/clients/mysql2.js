// Node's mysql2. The contract with the tests is in drivers_test.go and change_test.go.
const fs = require("fs"), crypto = require("crypto");
const mysql = require(process.env.DRIVERS_NODE + "/mysql2/promise");
const config = JSON.parse(fs.readFileSync(process.argv[3]));
const TEXT = "Grüße, мир, 漢字, 🐬";

const options = (door, user, tls) => ({
  host: door.host, port: door.port, user, password: config.password, charset: "utf8mb4", connectTimeout: 10000, multipleStatements: true,
  ssl: tls ? { rejectUnauthorized: false } : undefined, infileStreamFactory: (path) => fs.createReadStream(path),
});
const same = (got, want) => {
  const [a, b] = [JSON.stringify(got), JSON.stringify(want)];
  if (a !== b) throw new Error(`${String(a).slice(0, 200)}, want ${String(b).slice(0, 200)}`);
};
const values = async (c, text, args) => (await c.query({ sql: text, rowsAsArray: true }, args))[0];

async function login(door, user, tls) {
  for (const _ of ["full", "fast"]) {
    const c = await mysql.createConnection(options(door, user, tls));
    same((await values(c, "SHOW SESSION STATUS LIKE 'Ssl_cipher'"))[0][1] !== "", tls);
    await c.end();
  }
}
async function error(c, text, number, state) {
  try {
    await c.query(text);
  } catch (e) {
    return same([e.errno, e.sqlState], [number, state]);
  }
  throw new Error(text + " was accepted");
}
async function blob(c) {
  const data = Buffer.alloc(20 << 20, crypto.createHash("sha256").update("x").digest());
  same((await values(c, "SELECT ?", [data]))[0][0].equals(data), true);
}
async function writes(c, door) {
  const t = "drivers.w_mysql2_" + door.name;
  await c.query(`CREATE TABLE ${t} (id INT PRIMARY KEY, v VARCHAR(100)) CHARSET utf8mb4`);
  await c.execute(`INSERT INTO ${t} VALUES (?, ?)`, [1, TEXT]);
  same(await values(c, `SELECT v, HEX(v) FROM ${t}`), [[TEXT, Buffer.from(TEXT).toString("hex").toUpperCase()]]);
  await error(c, `INSERT INTO ${t} VALUES (1, '')`, 1062, "23000");
  await c.beginTransaction();
  await c.query(`INSERT INTO ${t} VALUES (2, '')`);
  await c.rollback();
  await c.beginTransaction();
  await c.query(`INSERT INTO ${t} VALUES (3, '')`);
  await c.commit();
  same(await values(c, `SELECT id FROM ${t} ORDER BY id`), [[1], [3]]);
  await c.query(`LOAD DATA LOCAL INFILE '${config.csv}' INTO TABLE ${t} FIELDS TERMINATED BY ','`);
  same(await values(c, `SELECT COUNT(*) FROM ${t} WHERE id >= 1000`), [[100]]);
}
async function check(door) {
  const report = async (what, f) => {
    try {
      await f();
      console.log("ok", door.name, what);
    } catch (e) {
      console.log("FAIL", door.name, what, e.code, String(e.message).replace(/\n/g, " "));
    }
  };
  await report("login-tls", () => login(door, door.fresh[0], true));
  await report("login-plain", () => login(door, door.fresh[1], false));
  const c = await mysql.createConnection(options(door, config.user, true));
  await report("charset", async () => same(await values(c, "SELECT ?", [TEXT]), [[TEXT]]));
  await report("prepared", async () => {
    for (const i of [1, 2]) same((await c.execute({ sql: "SELECT ?, ? + 1", rowsAsArray: true }, [TEXT, i]))[0], [[TEXT, i + 1]]);
  });
  await report("multi", async () => same(await values(c, "SELECT 1; SELECT 2, 'x'; SELECT 3"), [[[1]], [[2, "x"]], [[3]]]));
  await report("blob", () => blob(c));
  await report("variables", async () => {
    await c.query("SET SESSION sort_buffer_size = 65536");
    same(await values(c, "SELECT @@sort_buffer_size"), [[65536]]);
  });
  await report("syntax-error", () => error(c, "SELEC 1", 1064, "42000"));
  if (door.writes) await report("writes", () => writes(c, door));
  else await report("read-only-error", () => error(c, "CREATE TABLE drivers.no (id INT PRIMARY KEY)", 1290, "HY000"));
  await report("reset", async () => {
    await c.query("SET @kept = 1");
    await c.changeUser({ user: config.other, password: config.password, database: "drivers" });
    same(await values(c, "SELECT SUBSTRING_INDEX(USER(), '@', 1), @kept"), [[config.other, null]]);
  });
  await c.end();
}
// CODE STATE text
const told = (e) => `${e.errno > 0 ? e.errno : 0} ${e.sqlState || "-"} ${e.code} ${e.message}`.replace(/\n/g, " ");

// Three workers write rows until the input ends: in a transaction with the counter, by themselves as text, by themselves prepared.
async function load() {
  let stop = false;
  process.stdin.resume().on("end", () => (stop = true)).on("close", () => (stop = true));
  const pool = mysql.createPool({ ...options(config.doors[0], config.user, false), connectTimeout: 40000, connectionLimit: 3 });
  const transaction = async (insert, at) => {
    at.step = "connect";
    const c = await pool.getConnection();
    try {
      at.step = "begin";
      await c.beginTransaction();
      at.step = "insert";
      await c.query(insert);
      at.step = "update";
      await c.query("UPDATE drivers.count_mysql2 SET v = v + 1");
      at.step = "commit";
      await c.commit();
    } catch (e) {
      await c.rollback().catch(() => c.destroy());
      throw e;
    } finally {
      c.release();
    }
  };
  const write = async (n, a, at) => {
    const insert = `INSERT INTO drivers.load_mysql2 (n, a) VALUES (${n}, ${a})`;
    at.step = "insert";
    if (n % 3 === 1) await transaction(insert, at);
    else if (n % 3 === 2) await pool.query(insert);
    else await pool.execute("INSERT INTO drivers.load_mysql2 (n, a) VALUES (?, ?)", [n, a]);
  };
  // true: it is to be repeated
  const attempt = async (n, a) => {
    const at = { step: "" };
    try {
      await write(n, a, at);
    } catch (e) {
      console.log("err", n, a, at.step, told(e));
      return e.sqlState === "40001";
    }
    console.log("ack", n, a);
    try {
      const [[[got]]] = await pool.execute({ sql: "SELECT /*+ trireme_consistency(BEFORE) */ COUNT(*) FROM drivers.load_mysql2 WHERE n = ? AND a = ?", rowsAsArray: true }, [n, a]);
      if (got !== 1) console.log("miss", n, a);
    } catch (e) {
      console.log("late read", told(e));
    }
    return false;
  };
  const work = async (n) => {
    for (; !stop; n += 3) {
      for (let a = 1; (await attempt(n, a)) && !stop; a++);
      await new Promise((r) => setTimeout(r, 50));
    }
  };
  await Promise.all([work(1), work(2), work(3)]);
  await pool.end();
}
(async () => {
  if (process.argv[2] === "load") await load();
  else for (const door of config.doors) await check(door);
  console.log("done");
  process.exit(0);
})();
