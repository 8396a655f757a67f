-- What a busy installation has after a week: as many runs as durable.runs_wanted says, in
-- every state, of forty jobs on eight queues, most of them ended. One statement a line of
-- thought; none is repeated.

insert into durable.queues (name)
select 'queue-' || n from generate_series(0, 7) n
on conflict do nothing;

insert into durable.lanes (queue, job, priority)
select 'queue-' || n % 8, 'job-' || lpad(n::text, 2, '0'), 0 from generate_series(0, 39) n
on conflict do nothing;

insert into durable.jobs (name, queue, timeout, max_attempts, priority, on_crash)
select 'job-' || lpad(n::text, 2, '0'), 'queue-' || n % 8, 60000000, 3, 0, 0 from generate_series(0, 39) n
on conflict do nothing;

-- The last five hundred are running; of a thousand others a hundred are pending, six are dead
-- and four cancelled.
insert into durable.runs (
    id, claim_id, fence, created_at, due_at, started_at, finished_at, lane, worker, attempt, max_attempts, schedule,
    generation, occurrence, state, args, result, tags, key, metadata
)
select
    (lpad(to_hex((extract(epoch from at) * 1000)::bigint), 12, '0') || '70008000' || lpad(to_hex(n), 12, '0'))::uuid,
    case when state = 1 then lpad(to_hex(n / 50), 32, '0')::uuid when state <> 0 then lpad(to_hex(n), 32, '0')::uuid end,
    n, at,
    case when state = 0 and n % 10 > 0 then now() + interval '1 hour' + n % 86400 * interval '1 second' else at end,
    case when state = 1 then now() - interval '1 minute' when state <> 0 then at + interval '1 second' end,
    case when state in (2, 4, 5) then at + interval '2 seconds' end,
    lanes.id,
    case when state <> 0 then workers.id end,
    case state when 0 then 0 when 4 then 3 else 1 end, 3,
    case when n % 20 = 0 then schedules.id end,
    case when n % 20 = 0 then 1 end,
    case when n % 20 = 0 then n::text end,
    state,
    json_build_object('customer', 'customer-' || n % 5000, 'order', n, 'lines', json_build_array('socks', 'shoes')),
    case when state = 2 and n % 4 = 0 then '{"message":"accepted"}'::json end,
    case when n % 5 = 0 then array['customer:' || n % 5000] when n % 333333 = 1 then array['rare'] end,
    case when n % 100 = 7 then 'order-' || n end,
    case when n % 10 = 3 then json_build_object('tenant', 'tenant-' || n % 200) end
from (
    select
        n,
        least(n * 7919 % 40, n * 104729 / 13 % 40) as job,
        now() - (durable.runs_wanted() - n) * (interval '7 days' / durable.runs_wanted()) as at,
        case
            when n > durable.runs_wanted() - 500 then 1
            when n * 7919::bigint % 1000 < 100 then 0
            when n * 7919::bigint % 1000 < 106 then 4
            when n * 7919::bigint % 1000 < 110 then 5
            else 2
        end as state
    from generate_series(1, durable.runs_wanted()) n
) made
join durable.lanes on lanes.job = 'job-' || lpad(made.job::text, 2, '0') and lanes.queue = 'queue-' || made.job % 8
left join durable.workers on workers.name = 'web-' || 10 + n % 50
left join durable.schedules on schedules.name = 'schedule-' || n / 20 % 200;

insert into durable.ready (lane, due_at, run_id)
select lane, due_at, id from durable.runs where state = 0 and gates is null and not exists (select from durable.ready where run_id = id);

insert into durable.leases (claim_id, acquired_at, expires_at, duration, worker, alone, run_ids)
select claim_id, now(), now() + interval '1 day', 86400000000, min(worker), false, array_agg(id) from durable.runs where state = 1 group by claim_id;

insert into durable.problems (run_id, ended_at, state, reason, lane, acknowledged_at, acknowledged_by)
select
    id, finished_at, state,
    case when state = 5 then 'the customer has called'
         when fence % 3 = 0 then 'POST https://api.example/v2/' || lane || ': 503 Service Unavailable'
         else 'order ' || fence || ': dial tcp 10.0.0.' || fence % 250 || ':443: i/o timeout' end,
    lane,
    case when state = 4 and fence % 7 = 0 then now() end,
    case when state = 4 and fence % 7 = 0 then 'ada' end
from durable.runs where state in (4, 5) and not exists (select from durable.problems where run_id = id);

insert into durable.attempts (run_id, fence, started_at, ended_at, number, outcome, worker, error, log)
select problems.run_id, number, runs.started_at, runs.finished_at, number, case when number < 3 then 2 else 3 end, 'web-10', problems.reason, 'level=INFO msg=sending'
from durable.problems join durable.runs on runs.id = problems.run_id cross join generate_series(1, 3) number
where problems.state = 4 and not exists (select from durable.attempts where attempts.run_id = runs.id);

insert into durable.audit (at, actor, kind, subject, action, detail)
select
    now() - n * interval '1 minute', 'ada@ops-' || n % 9, (array['run', 'queue', 'schedule', 'bulk', 'limit'])[1 + n % 5],
    case when n % 5 = 0 then id::text else 'queue-' || n % 8 end, (array['retry', 'pause', 'set', 'cancel', 'drain'])[1 + n % 5],
    '{"reason":"as agreed"}'
from (select id, row_number() over () as n from (select id from durable.runs limit 50000) newest) named;

insert into durable.stats (span, queue, job, at, enqueued, succeeded, failed, dead, cancelled, crashed, busy, wait, took)
select
    spans.span, case when n < 0 then '' else 'queue-' || n % 8 end, case when n < 0 then '' else 'job-' || lpad(n::text, 2, '0') end,
    date_bin(spans.span * interval '1 minute', now(), timestamptz '2000-01-01 00:00:00+00') - step * spans.span * interval '1 minute',
    40 + step % 9, 40, step % 5, step % 3 / 2, 0, 0, 60000000, array_fill(3::bigint, array[16]), array_fill(2::bigint, array[16])
from (values (1::smallint, 359), (15::smallint, 2879)) spans (span, steps)
cross join lateral generate_series(0, spans.steps) step
cross join generate_series(-1, 39) n
on conflict do nothing;
