-- Frees a slot, whoever holds it, and writes down who ordered it.
-- KEYS: the slot, the book, the lock's list of forced releases, who waits
-- ARGV: slot, who, why, length of the list, channel, name
if redis.call('DEL', KEYS[1]) == 0 then
	return 0
end
local slot = ARGV[1]
redis.call('HDEL', KEYS[2], 'claim:' .. slot)
local now = redis.call('TIME')
redis.call('RPUSH', KEYS[3], cjson.encode({
	at = string.format('%.0f', now[1] * 1000000 + now[2]), by = ARGV[2], reason = ARGV[3],
	owner = redis.call('HGET', KEYS[2], 'owner:' .. slot) or '', fence = redis.call('HGET', KEYS[2], 'fence:' .. slot) or '0', slot = slot}))
redis.call('LTRIM', KEYS[3], -tonumber(ARGV[4]), -1)
tell(KEYS[4], ARGV[5], ARGV[6])
return 1
