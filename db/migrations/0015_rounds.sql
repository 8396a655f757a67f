-- Rounds: lines of runs with several limits that wait for one of them, where keys take
-- turns. A program that does not know them would take the turns of such lines, and find
-- nothing. min_compatible: 15

create table durable.rounds (
    line  bigint not null,
    gate  bigint not null,
    home  bigint not null,
    since timestamptz not null,
    lane  int not null,
    gates bigint[] not null,
    primary key (line, lane)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
create index rounds_order on durable.rounds (gate, lane, since, line);
create index rounds_home on durable.rounds (gate, home);
