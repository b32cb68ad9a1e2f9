-- Pauses a pacer. A pause is only ever prolonged.
--
-- KEYS[1]  as in pacer_reserve
-- ARGV[1]  for how many nanoseconds from now
--
-- Replies {0, the end of the pause: seconds and nanoseconds ahead of now, now}.
local distance = tonumber(ARGV[1])
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' then return failed(value) end
local s, ns, free, ps, pns, pause = 0, 0, 0, 0, 0, 0
if value then
  s, ns, free, ps, pns, pause = slots(value)
  if not s then return {-2, now} end
end
if distance > pause then
  -- Who waits for a slot before the end reserves anew, behind those whose slots
  -- are after it.
  free, pause = math.max(free, distance), distance
  if free > 9007199254740991 then return {-2, now} end
  redis.call('SET', KEYS[1], instant(free) .. ' ' .. instant(pause), 'PX', expiry(free))
end
ns = math.fmod(pause, 1000000000)
return {0, (pause - ns) / 1000000000, ns, now}
