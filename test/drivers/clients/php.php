<?php
// PHP's PDO (mysqlnd), over TLS: load FILE. The contract with the test is in change_test.go. One process, so its three sessions take turns.
$s = json_decode(file_get_contents($argv[2]), true);
$door = $s['doors'][0];
$step = '';

function session(int $i): PDO {
    global $s, $door, $step, $sessions;
    $step = 'connect';
    return $sessions[$i] ??= new PDO("mysql:host={$door['host']};port={$door['port']};charset=utf8mb4", $s['user'], $s['password'], [
        PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION, PDO::ATTR_EMULATE_PREPARES => false, PDO::ATTR_TIMEOUT => 40,
        PDO::MYSQL_ATTR_SSL_CIPHER => 'DEFAULT', PDO::MYSQL_ATTR_SSL_VERIFY_SERVER_CERT => false]);
}

// CODE STATE text
function told(PDOException $e): string {
    $info = $e->errorInfo ?? [null, 0];
    return ($info[1] ?? 0) . ' ' . ($info[0] ?: '-') . ' ' . str_replace("\n", ' ', $e->getMessage());
}

function write(PDO $c, int $n, int $a): void {
    global $step;
    $insert = "INSERT INTO drivers.load_php (n, a) VALUES ($n, $a)";
    $step = 'insert';
    if ($n % 3 == 1) {
        $step = 'begin';
        $c->beginTransaction();
        $step = 'insert';
        $c->exec($insert);
        $step = 'update';
        $c->exec('UPDATE drivers.count_php SET v = v + 1');
        $step = 'commit';
        $c->commit();
    } elseif ($n % 3 == 2) {
        $c->exec($insert);
    } else {
        $c->prepare('INSERT INTO drivers.load_php (n, a) VALUES (?, ?)')->execute([$n, $a]);
    }
}

// true: it is to be repeated
function attempt(int $i, int $n, int $a): bool {
    global $step, $sessions;
    $acknowledged = false;
    try {
        $c = session($i);
        write($c, $n, $a);
        $acknowledged = true;
        echo "ack $n $a\n";
        $step = 'read';
        if ($c->query("SELECT COUNT(*) FROM drivers.load_php WHERE n = $n AND a = $a")->fetchColumn() != 1) {
            echo "miss $n $a\n";
        }
    } catch (PDOException $e) {
        echo ($acknowledged ? 'late ' : "err $n $a ") . $step . ' ' . told($e) . "\n";
        try {
            if (isset($c) && $c->inTransaction()) {
                $c->rollBack();
            }
            $lost = !isset($c) || in_array($e->errorInfo[1] ?? 0, [2002, 2006, 2013]);
        } catch (PDOException) {
            $lost = true;
        }
        if ($lost) {
            $sessions[$i] = null;
        }
        return !$acknowledged && ($e->errorInfo[0] ?? '') == '40001';
    }
    return false;
}

$sessions = [null, null, null];
stream_set_blocking(STDIN, false);
for ($n = 1; fread(STDIN, 1) === '' && !feof(STDIN); $n++) {
    for ($a = 1; attempt($n % 3, $n, $a); $a++);
    usleep(10000);
}
echo "done\n";
