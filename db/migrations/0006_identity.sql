-- What a publication FOR ALL TABLES needs in order that rows of ready, which has
-- no primary key, can be deleted. A change of the catalog only; without logical
-- decoding it costs nothing. min_compatible: 5

alter table durable.ready replica identity using index ready_order;
