-- Tells one of those who wait for a lock, any; the rest of a script calls it
-- when it has freed a slot. What cannot be told is found by asking.
local function tell(waits, channel, name)
	local now = redis.call('TIME')
	local micros = now[1] * 1000000 + now[2]
	local standing = {}
	local notes = redis.call('HGETALL', waits)
	for i = 1, #notes, 2 do
		if tonumber(cjson.decode(notes[i + 1])['until']) > micros then
			standing[#standing + 1] = notes[i]
		end
	end
	if #standing > 0 then
		redis.pcall('PUBLISH', channel, standing[1 + now[2] % #standing] .. ' ' .. name)
	end
end
