-- Deaths of runs whose jobs have a job for that. min_compatible: 19

create table durable.deaths (
    id      bigint generated always as identity primary key,
    run_id  uuid not null,
    died_at timestamptz not null default now(),
    job     text collate "C" not null,
    ran_as  text collate "C" not null,
    args    json,
    reason  text
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);
create index deaths_job on durable.deaths (job, id);

create function durable.note_death() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $function$
begin
    insert into durable.deaths (run_id, job, ran_as, args, reason)
    select runs.id, jobs.name, lanes.job, runs.args, new.reason
    from durable.runs
    join durable.lanes on lanes.id = abs(runs.lane)
    cross join durable.jobs
    cross join lateral json_array_elements(
        case when json_typeof(jobs.code) = 'array' then jobs.code end
    ) version (said)
    where runs.id = new.run_id
      and version.said -> 'code' ->> 'on_dead' not in (jobs.name, lanes.job)
      and (
        jobs.name = lanes.job
        or (version.said -> 'code' -> 'aliases')::jsonb ? lanes.job
      )
    order by jobs.name = lanes.job desc
    limit 1;
    return null;
end
$function$;
create trigger problems_death_noted after insert on durable.problems
    for each row when (new.state = 4)
    execute function durable.note_death();
