-- Takes a lease of a semaphore back.
--
-- KEYS     as the first two of sem_acquire
-- ARGV[1]  its id
--
-- Replies {0, 1 if it had not ended, how much is lent, now}.
local holders = redis.pcall('ZCARD', KEYS[1])
if type(holders) == 'table' then return failed(holders, 1) end
local used = redis.pcall('HGET', KEYS[2], 'used')
if type(used) == 'table' then return failed(used, 2) end
if (used and not number(used)) or (not used and holders > 0) then return unreadable(2) end
used = tonumber(used or 0)
local ends = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not ends then return {0, 0, used, now} end
local weight = weighs(redis.call('HGET', KEYS[2], ARGV[1]))
if not weight then return unreadable(2) end
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])
used = used - weight
if holders == 1 then
  used = 0
  redis.call('DEL', KEYS[2])
else
  redis.call('HSET', KEYS[2], 'used', whole(used))
end
return {0, tonumber(ends) > now and 1 or 0, used, now}
