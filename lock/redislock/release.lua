-- Frees the slot that a claim holds. Compare and act in one step.
-- KEYS: the slot, the book, who waits, what refuses the claim, which is not needed
-- once it was granted; ARGV: claim, slot, channel, name
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
	return 0
end
redis.call('DEL', KEYS[1])
redis.call('HDEL', KEYS[2], 'claim:' .. ARGV[2])
redis.call('DEL', KEYS[4])
tell(KEYS[3], ARGV[3], ARGV[4])
return 1
