-- Counts the instances that are alive.
--
-- KEYS[1]  a sorted set: the ids of instances, by when each was heard of last, in
--          microseconds since 1970
-- ARGV     the id of this one, for how many microseconds one counts, 1 if it is
--          there or 0 if it leaves
--
-- Replies {0, how many there are, now}.
local id, lasts, here = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local count = redis.pcall('ZCARD', KEYS[1])
if type(count) == 'table' then return failed(count) end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', whole(now - lasts))
-- Before the clock stepped back: they may not be there any more.
redis.call('ZREMRANGEBYSCORE', KEYS[1], '(' .. whole(now + lasts), '+inf')
if here == '1' then
  redis.call('ZADD', KEYS[1], whole(now), id)
  redis.call('PEXPIRE', KEYS[1], whole(math.ceil(lasts / 1000) + 1))
else
  redis.call('ZREM', KEYS[1], id)
end
return {0, redis.call('ZCARD', KEYS[1]), now}
