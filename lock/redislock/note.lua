-- Notes that a process waits for a lock, or takes the note back.
-- KEYS: the lock's notes; ARGV: waiter, calls, owner, life in ms
if tonumber(ARGV[2]) == 0 then
	return redis.call('HDEL', KEYS[1], ARGV[1])
end
local now = redis.call('TIME')
local micros = now[1] * 1000000 + now[2]
local since = micros
local before = redis.call('HGET', KEYS[1], ARGV[1])
if before then
	before = cjson.decode(before)
	if tonumber(before['until']) > micros then
		since = before.since
	end
end
redis.call('HSET', KEYS[1], ARGV[1], cjson.encode({
	since = type(since) == 'string' and since or string.format('%.0f', since),
	['until'] = string.format('%.0f', micros + ARGV[4] * 1000), calls = ARGV[2], owner = ARGV[3]}))
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return 1
