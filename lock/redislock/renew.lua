-- Extends a slot that the claim holds. Compare and act in one step.
-- KEYS: the slot, the book; ARGV: claim, duration in ms, life of the book in ms
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
	return 0
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return 1
