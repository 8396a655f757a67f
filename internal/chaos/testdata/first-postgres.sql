-- What a program of the first schema left behind; see upgrade_test.go.
insert into durable.meta (version, min_compatible) values (1, 1);
insert into durable.workers (id, instance, name) overriding system value values (1, gen_random_uuid(), 'old');
insert into durable.lanes (id, queue, job, priority) overriding system value values (1, 'default', 'old', 0), (2, 'default', 'tick', 0);
select setval(pg_get_serial_sequence('durable.lanes', 'id'), 2), setval(pg_get_serial_sequence('durable.workers', 'id'), 1);
insert into durable.jobs (name, queue, timeout, max_attempts, priority, on_crash) values ('old', 'default', 60000000, 3, 0, 0);

insert into durable.runs (id, lane, due_at, max_attempts, args, state, attempt, crash_count, fence, claim_id, worker, started_at, finished_at, result, tags) values
('01890000-0000-7000-8000-000000000001',  1, now() - interval '1 minute', 3, '{"n":1}', 0, 0, 0, 0, null, null, null, null, null, '{a,b}'),
('01890000-0000-7000-8000-000000000002',  1, now() - interval '1 second', 3, '{"n":2}', 0, 1, 0, 7, null, 1, now() - interval '1 minute', null, null, null),
('01890000-0000-7000-8000-000000000003', -1, now() - interval '1 minute', 3, '{"n":3}', 0, 0, 2, 8, null, 1, now() - interval '1 minute', null, null, null),
('01890000-0000-7000-8000-000000000004',  1, now() - interval '1 minute', 3, '{"n":4}', 1, 1, 0, 9, '00000000-0000-4000-8000-00000000000c', 1, now() - interval '1 minute', null, null, null),
('01890000-0000-7000-8000-000000000005',  1, now() + interval '1 hour',   3, '{"n":5}', 0, 0, 0, 0, null, null, null, null, null, null),
('01890000-0000-7000-8000-000000000006',  1, now() - interval '1 hour',   3, '{"n":6}', 2, 1, 0, 10, '00000000-0000-4000-8000-00000000000d', 1, now() - interval '1 hour', now() - interval '1 hour', '{"ok":true}', null),
('01890000-0000-7000-8000-000000000007',  1, now() - interval '1 hour',   1, '{"n":7}', 4, 1, 0, 11, '00000000-0000-4000-8000-00000000000e', 1, now() - interval '1 hour', now() - interval '1 hour', null, null),
('01890000-0000-7000-8000-000000000008',  1, now() - interval '1 hour',   3, '{"n":8}', 5, 0, 0, 0, null, null, null, now() - interval '1 hour', null, null);
insert into durable.ready (lane, due_at, run_id) select lane, due_at, id from durable.runs where state = 0;
insert into durable.leases (claim_id, acquired_at, expires_at, duration, worker, alone, run_ids) values
('00000000-0000-4000-8000-00000000000c', now() - interval '1 minute', now() - interval '1 second', 30000000, 1, false, '{01890000-0000-7000-8000-000000000004}');
insert into durable.attempts (run_id, fence, started_at, ended_at, number, outcome, worker, error, stack) values
('01890000-0000-7000-8000-000000000002', 7, now() - interval '1 minute', now() - interval '1 minute', 1, 2, 'old', 'once', null),
('01890000-0000-7000-8000-000000000007', 11, now() - interval '1 hour', now() - interval '1 hour', 1, 3, 'old', 'for good', 'main.go:1');
insert into durable.problems (run_id, ended_at, state, reason) values
('01890000-0000-7000-8000-000000000007', now() - interval '1 hour', 4, 'for good'),
('01890000-0000-7000-8000-000000000008', now() - interval '1 hour', 5, 'expired');
insert into durable.schedules (name, generation, look_at, next_at, every, cron, zone, hash, job, queue, timeout, max_attempts, priority, on_crash, args) values
('beat', 3, '-infinity', now() + interval '1 second', 1000000, '', '', 'h', 'tick', 'default', 0, 3, 0, 0, '{"by":"beat"}'),
('nightly', 1, now() + interval '1 day', now() + interval '1 day', 0, '0 3 * * *', 'Europe/Berlin', 'h', 'tick', 'default', 0, 3, 0, 0, '{}');
