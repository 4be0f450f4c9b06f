"""Python drivers: PyMySQL, mysql-connector-python, mysqlclient (under load only), and SQLAlchemy's pool over PyMySQL (likewise).

The contract with the tests is in drivers_test.go and change_test.go.
"""
import hashlib
import importlib
import json
import sys
import threading

config = json.load(open(sys.argv[2]))
name = config["driver"]
module = importlib.import_module({"connector": "mysql.connector", "mysqlclient": "MySQLdb"}.get(name, "pymysql"))
TEXT = "Grüße, мир, 漢字, 🐬"


def connect(door, user, tls=None, multi=False):
    """tls: True required, False off, None as the driver would by itself."""
    options = dict(host=door["host"], port=door["port"], user=user, password=config["password"], charset="utf8mb4", connect_timeout=40)
    if name == "connector":
        options.update(connection_timeout=options.pop("connect_timeout"), allow_local_infile=True, autocommit=True)
        if tls is False:
            options["ssl_disabled"] = True
        return module.connect(**options)
    if name == "mysqlclient":
        return module.connect(**options, read_timeout=40, write_timeout=40)
    options.update(local_infile=True, autocommit=name != "sqlalchemy", read_timeout=40, write_timeout=40)
    if tls:
        options["ssl"] = {"check_hostname": False}
    if multi:
        options["client_flag"] = importlib.import_module("pymysql.constants.CLIENT").MULTI_STATEMENTS
    if tls is False:
        options["ssl_disabled"] = True
    return module.connect(**options)


def rows(c, text, args=None, **cursor):
    cur = c.cursor(**cursor)
    try:
        cur.execute(text, args) if args else cur.execute(text)
        return [tuple(r) for r in cur.fetchall()] if cur.description else []
    finally:
        cur.close()


def same(got, want):
    if got != want:
        raise AssertionError(f"{got!r:.200}, want {want!r:.200}")


def login(door, user, tls):
    for _ in ("full", "fast"):  # the first login of an account on a server is a full one
        c = connect(door, user, tls)
        cipher = rows(c, "SHOW SESSION STATUS LIKE 'Ssl_cipher'")[0][1]
        c.close()
        if tls is not None:
            same(cipher not in ("", None), tls)


def multi(door):
    c = connect(door, config["user"], multi=True)
    cur = c.cursor()
    text, got = "SELECT 1; SELECT 2, 'x'; SELECT 3", []
    cur.execute(text)
    while True:
        got.append(tuple(cur.fetchall()[0]))
        if not cur.nextset():
            break
    c.close()
    same(got, [(1,), (2, "x"), (3,)])


def prepared(c):
    if name == "connector":
        for i in (1, 2):
            same(rows(c, "SELECT ?, ? + 1", (TEXT, i), prepared=True), [(TEXT, i + 1)])
        return
    rows(c, "PREPARE s FROM 'SELECT ? + 1'")
    rows(c, "SET @v = 41")
    same(rows(c, "EXECUTE s USING @v"), [(42,)])


def blob(c):
    data = hashlib.sha256(b"x").digest() * (20 << 20 >> 5)
    if bytes(rows(c, "SELECT %s", (data,))[0][0]) != data:
        raise AssertionError("it came back different")


def reset(c):  # PyMySQL has neither of the two commands
    rows(c, "SET @kept = 1")
    c.cmd_reset_connection()
    same(rows(c, "SELECT @kept"), [(None,)])
    c.cmd_change_user(username=config["other"], password=config["password"], database="drivers")
    same(rows(c, "SELECT SUBSTRING_INDEX(USER(), '@', 1), DATABASE()"), [(config["other"], "drivers")])


def error(c, text, number, state):
    try:
        rows(c, text)
    except module.Error as e:
        got = getattr(e, "errno", None) or e.args[0]
        same((got, getattr(e, "sqlstate", None) or state), (number, state))
        return
    raise AssertionError(f"{text} was accepted")


def writes(c, door):
    t = f"drivers.w_{name}_{door['name']}"
    rows(c, f"CREATE TABLE {t} (id INT PRIMARY KEY, v VARCHAR(100)) CHARSET utf8mb4")
    rows(c, f"INSERT INTO {t} VALUES (1, %s)", (TEXT,))
    same(rows(c, f"SELECT v, HEX(v) FROM {t}"), [(TEXT, TEXT.encode().hex().upper())])
    error(c, f"INSERT INTO {t} VALUES (1, '')", 1062, "23000")
    if name == "connector":
        c.autocommit = False
    else:
        c.autocommit(False)
    rows(c, f"INSERT INTO {t} VALUES (2, '')")
    c.rollback()
    rows(c, f"INSERT INTO {t} VALUES (3, '')")
    c.commit()
    same(rows(c, f"SELECT id FROM {t} ORDER BY id"), [(1,), (3,)])
    rows(c, f"LOAD DATA LOCAL INFILE '{config['csv']}' INTO TABLE {t} FIELDS TERMINATED BY ','")
    c.commit()
    same(rows(c, f"SELECT COUNT(*), SUM(id) FROM {t} WHERE id >= 1000"), [(100, sum(range(1000, 1100)))])


def check(door):
    def report(what, f, *args):
        try:
            f(*args)
            print("ok", door["name"], what, flush=True)
        except Exception as e:
            print("FAIL", door["name"], what, type(e).__name__, str(e).replace("\n", " "), flush=True)

    for i, tls in enumerate((True, False, None)):
        if name != "connector" or tls is not False:  # it refuses full authentication without TLS
            report("login-" + ("tls", "plain", "default")[i], login, door, door["fresh"][i], tls)
    c = connect(door, config["user"])
    report("charset", lambda: same(rows(c, "SELECT %s", (TEXT,)), [(TEXT,)]))
    report("prepared", prepared, c)
    report("multi", multi, door)
    report("blob", blob, c)
    report("variables", lambda: (rows(c, "SET SESSION sort_buffer_size = 65536"), same(rows(c, "SELECT @@sort_buffer_size"), [(65536,)])))
    report("syntax-error", error, c, "SELEC 1", 1064, "42000")
    if door["writes"]:
        report("writes", writes, c, door)
    else:
        report("read-only-error", error, c, "CREATE TABLE drivers.no (id INT PRIMARY KEY)", 1290, "HY000")
    if name == "connector":
        report("reset", reset, connect(door, config["user"]))


def told(e):
    """CODE STATE text of an exception. PyMySQL and mysqlclient do not keep the SQLSTATE."""
    e = getattr(e, "orig", None) or e
    code = getattr(e, "errno", None) or (e.args[0] if e.args and isinstance(e.args[0], int) else 0)
    return f"{max(code, 0)} {getattr(e, 'sqlstate', None) or '-'} {type(e).__name__} {e}".replace("\n", " ")


class Session:
    """A worker's connection, without autocommit where the driver begins so; a lost one is replaced."""

    def __init__(self):
        self.c, self.step, self.acknowledged = None, "", False

    def open(self):
        self.step = "connect"
        if self.c is None:
            self.c = connect(config["doors"][0], config["user"])
            self.autocommit(True)

    def autocommit(self, on):
        if name == "connector":
            self.c.autocommit = on
        else:
            self.c.autocommit(on)

    def run(self, step, text, args=None, **cursor):
        self.step = step
        return rows(self.c, text, args, **cursor)

    def write(self, n, a):
        self.open()
        insert = f"INSERT INTO drivers.load_{name} (n, a) VALUES ({n}, {a})"
        if n % 3 == 1:
            self.step = "begin"
            self.c.start_transaction() if name == "connector" else self.c.begin() if name == "pymysql" else self.autocommit(False)
            self.run("insert", insert)
            self.run("update", f"UPDATE drivers.count_{name} SET v = v + 1")
            self.step = "commit"
            self.c.commit()
        elif n % 3 == 2:
            self.run("insert", insert)
        else:
            marks, options = ("?, ?", {"prepared": True}) if name == "connector" else ("%s, %s", {})
            self.run("insert", f"INSERT INTO drivers.load_{name} (n, a) VALUES ({marks})", (n, a), **options)

    def there(self, n, a):
        got = self.run("read", f"SELECT COUNT(*) FROM drivers.load_{name} WHERE n = {n} AND a = {a}")[0][0]
        if name == "mysqlclient" and n % 3 == 1:
            self.step = "autocommit"
            self.autocommit(True)
        return got

    def failed(self):
        """What an application does with an error of the server, and with the end of a connection."""
        try:
            self.c.rollback()
            self.autocommit(True)
        except Exception:
            self.c = None


class Pooled(Session):
    """SQLAlchemy's pool: a connection per use, with what the pool sends when it comes back."""

    def __init__(self):
        self.step, self.acknowledged = "", False

    def write(self, n, a):
        self.step = "connect"
        with pool.connect() as c:
            if n % 3 == 2:
                c = c.execution_options(isolation_level="AUTOCOMMIT")
            trx = c.begin()
            self.step = "insert"
            c.execute(sqlalchemy.text("INSERT INTO drivers.load_sqlalchemy (n, a) VALUES (:n, :a)"), {"n": n, "a": a})
            if n % 3 == 1:
                self.step = "update"
                c.execute(sqlalchemy.text("UPDATE drivers.count_sqlalchemy SET v = v + 1"))
            self.step = "commit"
            if n % 3 == 2:  # the row is there; the COMMIT that comes all the same has nothing to do with it
                self.step, self.acknowledged = "close", True
            trx.commit()
            self.step, self.acknowledged = "close", True

    def there(self, n, a):
        self.step = "read"
        with pool.connect() as c:
            return c.execute(sqlalchemy.text("SELECT /*+ trireme_consistency(BEFORE) */ COUNT(*) FROM drivers.load_sqlalchemy WHERE n = :n AND a = :a"), {"n": n, "a": a}).scalar()

    def failed(self):
        pass


def load():
    """Three workers write rows until the input ends."""
    global pool, sqlalchemy
    if name == "sqlalchemy":
        import sqlalchemy
        pool = sqlalchemy.create_engine("mysql+pymysql://", creator=lambda: connect(config["doors"][0], config["user"]), pool_size=3, pool_pre_ping=True)
    stop, lock = threading.Event(), threading.Lock()

    def say(line):
        with lock:
            print(line, flush=True)

    def attempt(s, n, a):
        """True: it is to be repeated."""
        s.acknowledged = False
        try:
            s.write(n, a)
            s.acknowledged = True
            say(f"ack {n} {a}")
            if s.there(n, a) != 1:
                say(f"miss {n} {a}")
        except Exception as e:
            text = told(e)
            if "Connection not available" in text:
                s.step = "ping"  # of mysql-connector, before each cursor
            if not s.acknowledged:
                say(f"err {n} {a} {s.step} {text}")
            else:
                if s.step == "close":
                    say(f"ack {n} {a}")
                say(f"late {s.step} {text}")
            s.failed()
            return not s.acknowledged and text.startswith("1213 ")
        return False

    def work(n):
        s = Pooled() if name == "sqlalchemy" else Session()
        while not stop.wait(0.05):
            a = 1
            while attempt(s, n, a) and not stop.is_set():
                a += 1
            n += 3

    threads = [threading.Thread(target=work, args=(i,)) for i in (1, 2, 3)]
    for t in threads:
        t.start()
    sys.stdin.read()
    stop.set()
    for t in threads:
        t.join()


if sys.argv[1] == "load":
    load()
else:
    for d in config["doors"]:
        check(d)
print("done", flush=True)
