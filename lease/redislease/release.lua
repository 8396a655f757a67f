-- Frees the slot that a claim holds. Compare and act in one step.
-- KEYS: the slot, the book; ARGV: claim, slot
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
	return 0
end
redis.call('DEL', KEYS[1])
redis.call('HDEL', KEYS[2], 'claim:' .. ARGV[2])
return 1
