-- Reserves slots of a pacer.
--
-- KEYS[1]  the next free slot and, in a pause, its end
-- ARGV[1]  nanoseconds of slots missed that may be caught up
-- ARGV[2]  how far ahead slots are reserved at most, in nanoseconds
-- ARGV[3…] pairs: how many nanoseconds of slots a request takes, and how long it
--          would wait for its first. Without any the pacer is only looked at.
--
-- Replies {0, requests granted, whether clamped, the first slot: seconds and
-- nanoseconds ahead of now, the end of the pause: likewise, or 0 0; now}.
local tolerance, horizon = tonumber(ARGV[1]), tonumber(ARGV[2])
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' then return failed(value) end

local s, ns, free, ps, pns, pause = 0, -tolerance, -tolerance, 0, 0, 0
if value then
  s, ns, free, ps, pns, pause = slots(value)
  if not s then return {-2, now} end
  if free < -tolerance then s, ns, free = 0, -tolerance, -tolerance end
end

-- No slot is reserved beyond the horizon, so one that is free only later is the
-- work of a clock that stepped back.
local clamped = 0
if free > math.max(0, pause) + 2 * horizon then
  free, clamped = math.max(0, pause) + horizon, 1
  s, ns = 0, free
end
if pause > 0 and free < pause then s, ns, free = ps, pns, pause end

local granted, first = 0, free
for i = 3, #ARGV, 2 do
  local takes, patience = tonumber(ARGV[i]), tonumber(ARGV[i + 1])
  if free <= patience then free, granted = free + takes, granted + 1 end
end
if granted > 0 then
  local text = instant(free)
  if pause > 0 then text = text .. ' ' .. instant(pause) end
  redis.call('SET', KEYS[1], text, 'PX', expiry(math.max(0, free, pause) + tolerance))
end
return {0, granted, clamped, s, ns, ps, pns, now}
