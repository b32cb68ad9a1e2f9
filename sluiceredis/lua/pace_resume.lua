-- Ends a pause, and makes all slots void that were reserved before.
--
-- KEYS[1]  as in pace_reserve
-- ARGV[1]  a pause that is over within so many nanoseconds is left alone
-- ARGV[2]  in how many nanoseconds the first slot is
-- ARGV[3]  as ARGV[2] of pace_pause
--
-- Replies {0, the end of the pause, until where void slots reach: each as seconds
-- and nanoseconds ahead of now, or 0 0; now}.
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' then return failed(value, 1) end
if not value then return {0, 0, 0, 0, 0, now} end
local s, ns, free, ps, pns, pause, ms, mns, mark = slots(value)
if not s then return unreadable(1) end
if pause <= tonumber(ARGV[1]) then return {0, ps, pns, ms, mns, now} end
mark = math.max(free, mark + 1) -- later than the last one, so that it can be told from that
free = tonumber(ARGV[2])
if mark > 9007199254740991 then return unreadable(1) end
redis.call('SET', KEYS[1], pacer(free, 0, mark), 'PX', expiry(math.max(free, mark) + tonumber(ARGV[3])))
mns = math.fmod(mark, 1000000000)
return {0, 0, 0, (mark - mns) / 1000000000, mns, now}
