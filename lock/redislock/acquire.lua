-- Takes a free slot of a lock. One atomic step; the server's clock alone.
-- KEYS[1] the lock's book, KEYS[2] what refuses the claim, KEYS[3...] the slots that
-- are known to exist
-- ARGV: claim, cap, duration in ms, owner, life of the book in ms
-- Answers {1, slot, fence, took over}, {0, ms until a slot expires}, {2, n}: the lock
-- has had n slots, ask again with the keys of all of them, or {3}: the claim was
-- given back before it came.
local book, claim, cap = KEYS[1], ARGV[1], tonumber(ARGV[2])
local known = #KEYS - 2
local ever = tonumber(redis.call('HGET', book, 'slots') or '0')
if ever > known then
	return {2, ever}
end
local held, free, soonest, last = 0, nil, nil, -1
for slot = 0, known - 1 do
	local holder = redis.call('GET', KEYS[slot + 3])
	if holder == claim then
		redis.call('PEXPIRE', KEYS[slot + 3], ARGV[3])
		return {1, slot, redis.call('HGET', book, 'fence:' .. slot), 0}
	elseif holder then
		held, last = held + 1, slot
		local left = redis.call('PTTL', KEYS[slot + 3])
		if not soonest or left < soonest then
			soonest = left
		end
	elseif not free and slot < cap then
		free = slot
	end
end
if held >= cap then
	return {0, soonest}
end
if redis.call('EXISTS', KEYS[2]) == 1 then
	return {3}
end
local now = redis.call('TIME')
local micros = now[1] * 1000000 + now[2]
local fence = math.max(tonumber(redis.call('HGET', book, 'fence') or '0') + 1, micros)
-- A claim in the book whose key is gone was never released: it expired.
local expired = redis.call('HGET', book, 'claim:' .. free) and 1 or 0
redis.call('SET', KEYS[free + 3], claim, 'NX', 'PX', ARGV[3])
redis.call('HSET', book, 'fence', string.format('%.0f', fence), 'slots', math.max(last, free, cap - 1) + 1,
	'claim:' .. free, claim, 'owner:' .. free, ARGV[4],
	'at:' .. free, string.format('%.0f', micros), 'fence:' .. free, string.format('%.0f', fence))
redis.call('PEXPIRE', book, ARGV[5])
return {1, free, string.format('%.0f', fence), expired}
