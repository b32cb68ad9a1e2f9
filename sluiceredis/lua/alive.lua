-- Counts the instances that are alive.
--
-- KEYS[1]  a sorted set: the ids of instances, by the instant at which each called last, in
--          microseconds since 1970
-- ARGV     the id of this one, for how many microseconds one counts
--
-- Replies {0, how many there are, now}.
local id, lasts = ARGV[1], tonumber(ARGV[2])
local count = redis.pcall('ZCARD', KEYS[1])
if type(count) == 'table' then return failed(count, 1) end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', whole(now - lasts))
-- Before the clock stepped back: they may be gone.
redis.call('ZREMRANGEBYSCORE', KEYS[1], '(' .. whole(now + lasts), '+inf')
redis.call('ZADD', KEYS[1], whole(now), id)
redis.call('PEXPIRE', KEYS[1], whole(math.ceil(lasts / 1000) + 1))
return {0, redis.call('ZCARD', KEYS[1]), now}
