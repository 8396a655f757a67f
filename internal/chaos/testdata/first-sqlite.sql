-- What a program of the first schema left behind; see upgrade_test.go.
CREATE TEMP TABLE t (us INTEGER);
INSERT INTO t VALUES (CAST(unixepoch('subsec') * 1000000 AS INTEGER));
INSERT INTO workers (instance, name, started_at, declared_at) SELECT X'000000000000400080000000000000AA', 'old', us, us FROM t;
INSERT INTO lanes (id, queue, job, priority) VALUES (1, 'default', 'old', 0), (2, 'default', 'tick', 0);
INSERT INTO jobs (name, queue, priority, max_attempts, timeout, on_crash, declared_at) SELECT 'old', 'default', 0, 3, 60000000, 0, us FROM t;

INSERT INTO runs (id, created_at, due_at, lane, max_attempts, args, state, attempt, crash_count, fence, claim_id, worker, started_at, finished_at, result, tags) SELECT
column1, us - 3600000000, us + column2 * 1000000, column3, column4, column5, column6, column7, column8, column9, column10, column11,
us + column12 * 1000000, us + column13 * 1000000, column14, column15 FROM t, (VALUES
(X'01890000000070008000000000000001', -60, 1, 3, CAST('{"n":1}' AS BLOB), 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, '["a","b"]'),
(X'01890000000070008000000000000002', -1, 1, 3, CAST('{"n":2}' AS BLOB), 0, 1, 0, 7, NULL, 'old', -60, NULL, NULL, NULL),
(X'01890000000070008000000000000003', -60, -1, 3, CAST('{"n":3}' AS BLOB), 0, 0, 2, 8, NULL, 'old', -60, NULL, NULL, NULL),
(X'01890000000070008000000000000004', -60, 1, 3, CAST('{"n":4}' AS BLOB), 1, 1, 0, 9, X'0000000000004000800000000000000C', 'old', -60, NULL, NULL, NULL),
(X'01890000000070008000000000000005', 3600, 1, 3, CAST('{"n":5}' AS BLOB), 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL),
(X'01890000000070008000000000000006', -3600, 1, 3, CAST('{"n":6}' AS BLOB), 2, 1, 0, 10, X'0000000000004000800000000000000D', 'old', -3600, -3600, CAST('{"ok":true}' AS BLOB), NULL),
(X'01890000000070008000000000000007', -3600, 1, 1, CAST('{"n":7}' AS BLOB), 4, 1, 0, 11, X'0000000000004000800000000000000E', 'old', -3600, -3600, NULL, NULL),
(X'01890000000070008000000000000008', -3600, 1, 3, CAST('{"n":8}' AS BLOB), 5, 0, 0, 0, NULL, NULL, NULL, -3600, NULL, NULL));
INSERT INTO ready (lane, due_at, run_id) SELECT lane, due_at, id FROM runs WHERE state = 0;
INSERT INTO leases (claim_id, acquired_at, expires_at, alone, worker_instance, worker_name, run_ids)
SELECT X'0000000000004000800000000000000C', us - 60000000, us - 1000000, 0, X'000000000000400080000000000000AA', 'old', X'01890000000070008000000000000004' FROM t;
INSERT INTO attempts (run_id, fence, number, outcome, worker, started_at, ended_at, error, stack)
SELECT X'01890000000070008000000000000002', 7, 1, 2, 'old', us - 60000000, us - 60000000, 'once', NULL FROM t
UNION ALL SELECT X'01890000000070008000000000000007', 11, 1, 3, 'old', us - 3600000000, us - 3600000000, 'for good', 'main.go:1' FROM t;
INSERT INTO problems (run_id, ended_at, reason) SELECT X'01890000000070008000000000000007', us - 3600000000, 'for good' FROM t
UNION ALL SELECT X'01890000000070008000000000000008', us - 3600000000, 'expired' FROM t;
INSERT INTO schedules (name, hash, generation, cron, zone, every, job, queue, priority, args, max_attempts, timeout, on_crash, next_at, look_at, declared_at)
SELECT 'beat', 'h', 3, '', '', 1000000, 'tick', 'default', 0, CAST('{"by":"beat"}' AS BLOB), 3, 0, 0, us + 1000000, us, us FROM t
UNION ALL SELECT 'nightly', 'h', 1, '0 3 * * *', 'Europe/Berlin', 0, 'tick', 'default', 0, CAST('{}' AS BLOB), 3, 0, 0, us + 86400000000, us + 86400000000, us FROM t;
DROP TABLE t;
