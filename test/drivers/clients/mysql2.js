// Node's mysql2. The contract with the test is in drivers_test.go.
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
async function load() {
  let stop = false;
  process.stdin.resume().on("end", () => (stop = true)).on("close", () => (stop = true));
  const pool = mysql.createPool({ ...options(config.doors[0], config.user, false), connectionLimit: 2 });
  const work = async (n) => {
    for (; !stop; n += 2) {
      try {
        await pool.query("INSERT INTO drivers.load_mysql2 (n) VALUES (?)", [n]);
        console.log("ack", n);
      } catch (e) {
        console.log("err", n, e.code, String(e.message).replace(/\n/g, " "));
      }
      await new Promise((r) => setTimeout(r, 20));
    }
  };
  await Promise.all([work(1), work(2)]);
  await pool.end();
}
(async () => {
  if (process.argv[2] === "load") await load();
  else for (const door of config.doors) await check(door);
  console.log("done");
  process.exit(0);
})();
