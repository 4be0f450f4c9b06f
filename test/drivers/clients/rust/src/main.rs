//! Rust's sqlx, with its pool. The contract with the test is in change_test.go.
use sqlx::mysql::{MySqlConnectOptions, MySqlDatabaseError, MySqlPool, MySqlPoolOptions};
use sqlx::{Connection, Executor, Row};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;

/// Makes the row of one attempt: in a transaction with the counter, by itself as text, by itself prepared. An error comes with its step.
async fn write(pool: &MySqlPool, n: u64, a: u64) -> Result<(), (&'static str, sqlx::Error)> {
    let insert = format!("INSERT INTO drivers.load_sqlx (n, a) VALUES ({n}, {a})");
    match n % 3 {
        1 => {
            let mut c = pool.acquire().await.map_err(|e| ("connect", e))?;
            let mut trx = c.begin().await.map_err(|e| ("begin", e))?;
            trx.execute(insert.as_str()).await.map_err(|e| ("insert", e))?;
            trx.execute("UPDATE drivers.count_sqlx SET v = v + 1").await.map_err(|e| ("update", e))?;
            trx.commit().await.map_err(|e| ("commit", e))?;
        }
        2 => {
            pool.execute(insert.as_str()).await.map_err(|e| ("insert", e))?;
        }
        _ => {
            let text = "INSERT INTO drivers.load_sqlx (n, a) VALUES (?, ?)";
            sqlx::query(text).bind(n).bind(a).execute(pool).await.map_err(|e| ("insert", e))?;
        }
    }
    Ok(())
}

async fn there(pool: &MySqlPool, n: u64, a: u64) -> Result<i64, sqlx::Error> {
    let text = "SELECT /*+ trireme_consistency(BEFORE) */ COUNT(*) FROM drivers.load_sqlx WHERE n = ? AND a = ?";
    sqlx::query(text).bind(n).bind(a).fetch_one(pool).await?.try_get(0)
}

/// CODE STATE text
fn told(e: &sqlx::Error) -> String {
    let text = e.to_string().replace('\n', " ");
    match e.as_database_error().and_then(|d| d.try_downcast_ref::<MySqlDatabaseError>()) {
        Some(d) => format!("{} {} {text}", d.number(), d.code().unwrap_or("-")),
        None => format!("0 - {text}"),
    }
}

async fn work(pool: MySqlPool, first: u64, stop: Arc<AtomicBool>) {
    let (mut n, mut a) = (first, 1);
    while !stop.load(Ordering::Relaxed) {
        match write(&pool, n, a).await {
            Ok(()) => {
                println!("ack {n} {a}");
                match there(&pool, n, a).await {
                    Ok(1) => {}
                    Ok(_) => println!("miss {n} {a}"),
                    Err(e) => println!("late read {}", told(&e)),
                }
            }
            Err((step, e)) => {
                println!("err {n} {a} {step} {}", told(&e));
                if told(&e).starts_with("1213 ") {
                    a += 1;
                    continue;
                }
            }
        }
        (n, a) = (n + 3, 1);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() {
    let args: Vec<String> = std::env::args().collect();
    let s: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&args[2]).unwrap()).unwrap();
    let door = &s["doors"][0];
    let options = MySqlConnectOptions::new()
        .host(door["host"].as_str().unwrap())
        .port(door["port"].as_u64().unwrap() as u16)
        .username(s["user"].as_str().unwrap())
        .password(s["password"].as_str().unwrap());
    let pool = MySqlPoolOptions::new().max_connections(3).acquire_timeout(Duration::from_secs(40)).connect_lazy_with(options);
    let stop = Arc::new(AtomicBool::new(false));
    let workers: Vec<_> = (1..=3).map(|i| tokio::spawn(work(pool.clone(), i, stop.clone()))).collect();
    let _ = tokio::io::stdin().read_to_end(&mut Vec::new()).await;
    stop.store(true, Ordering::Relaxed);
    for w in workers {
        w.await.unwrap();
    }
    println!("done");
}
