"""Reads stream.t from the change stream of one node after the other: USER PASSWORD GTIDS ROWS PORT... Prints the id of each row that is inserted.

When a dump ends, it goes on at the next port with the GTIDs that it has seen committed.
"""
import sys
import time

from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.event import GtidEvent, XidEvent
from pymysqlreplication.gtid import Gtid, GtidSet
from pymysqlreplication.row_event import WriteRowsEvent

user, password, begin, rows = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
ports = [int(p) for p in sys.argv[5:]]
have, seen, tries = GtidSet(begin.replace("\n", "")), 0, 0

while seen < rows:
    port = ports[tries % len(ports)]
    tries += 1
    stream = None
    try:
        stream = BinLogStreamReader(
            connection_settings={"host": "127.0.0.1", "port": port, "user": user, "passwd": password},
            server_id=3_000_000, auto_position=str(have), blocking=True, slave_heartbeat=1,
            only_events=[GtidEvent, XidEvent, WriteRowsEvent], only_schemas=["stream"])
        gtid, ids = None, []
        for event in stream:
            if isinstance(event, GtidEvent):
                gtid, ids = event.gtid, []
            elif isinstance(event, WriteRowsEvent):
                ids += [row["values"].get("id", row["values"].get("UNKNOWN_COL0")) for row in event.rows]
            elif isinstance(event, XidEvent):
                for i in ids:
                    print(i, flush=True)
                seen += len(ids)
                have = have + Gtid(gtid)
                if seen >= rows:
                    break
    except Exception as e:
        print(f"port {port}: {type(e).__name__}: {e}", file=sys.stderr)
        if "Access denied" in str(e):
            raise
        time.sleep(0.1)
    finally:
        if stream is not None:
            try:
                stream.close()
            except Exception:
                pass
print(f"{tries} connections", file=sys.stderr)
