-- Pauses a pacer. A pause is only ever prolonged.
--
-- KEYS[1]  as in pace_reserve
-- ARGV[1]  for how many nanoseconds from now
-- ARGV[2]  as ARGV[1] of pace_reserve: so long what is written says more than nothing
--
-- Replies {0, the end of the pause: seconds and nanoseconds ahead of now, until
-- where void slots reach: likewise, or 0 0; now}.
local distance = tonumber(ARGV[1])
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' then return failed(value, 1) end
local s, ns, free, ps, pns, pause, ms, mns, mark = 0, 0, 0, 0, 0, 0, 0, 0, 0
if value then
  s, ns, free, ps, pns, pause, ms, mns, mark = slots(value)
  if not s then return unreadable(1) end
end
if distance > pause then
  -- Who waits for a slot before the end reserves anew, behind those whose slots
  -- are after it.
  free, pause = math.max(free, distance), distance
  if free > 9007199254740991 then return unreadable(1) end
  redis.call('SET', KEYS[1], pacer(free, pause, mark), 'PX', expiry(math.max(free, mark) + tonumber(ARGV[2])))
end
ns = math.fmod(pause, 1000000000)
return {0, (pause - ns) / 1000000000, ns, ms, mns, now}
