-- Gives slots back, if no others were reserved after them.
--
-- KEYS[1]  as in pacer_reserve
-- ARGV[1]  the instant at which they end, in decimal
-- ARGV[2]  how many nanoseconds of slots they are
--
-- Replies {1 if they were given back, now}.
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' then return failed(value) end
if not value then return {0, now} end
local s, ns, free = slots(value)
if not s then return {-2, now} end
local digits, rest = string.match(value, '^(%d+)(.*)$')
if digits ~= ARGV[1] then return {0, now} end
free = free - tonumber(ARGV[2])
local ttl = redis.call('PTTL', KEYS[1]) -- KEEPTTL is not known before Redis 6
redis.call('SET', KEYS[1], instant(free) .. rest, 'PX', whole(math.max(1, ttl)))
return {1, now}
