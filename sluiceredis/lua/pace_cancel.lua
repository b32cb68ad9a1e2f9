-- Gives slots back, if no others were reserved after them.
--
-- KEYS[1]  as in pace_reserve
-- ARGV[1]  the instant at which they end, in decimal
-- ARGV[2]  how many nanoseconds of slots they are
-- ARGV[3]  if given, until where void slots reached when they were reserved, or 0
--
-- Replies {1 if they were given back, now}.
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' then return failed(value, 1) end
if not value then return {0, now} end
local s, ns, free, ps, pns, pause, ms, mns, mark = slots(value)
if not s then return unreadable(1) end
local digits, rest = string.match(value, '^(%d+)(.*)$')
if digits ~= ARGV[1] then return {0, now} end
if ARGV[3] and ARGV[3] ~= (string.match(rest, '^ %d+ (%d+)$') or '0') then return {0, now} end
free = free - tonumber(ARGV[2])
local ttl = redis.call('PTTL', KEYS[1]) -- KEEPTTL is not known before Redis 6
if ttl < 0 then ttl = tonumber(expiry(math.max(0, free, pause, mark))) end -- somebody took it away
redis.call('SET', KEYS[1], instant(free) .. rest, 'PX', whole(math.max(1, ttl)))
return {1, now}
