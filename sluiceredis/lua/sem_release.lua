-- Takes a lease of a semaphore back.
--
-- KEYS     as the first two of sem_acquire
-- ARGV[1]  its id
-- ARGV[2]  if a request for it may arrive later than this: for how long, in
--          microseconds
--
-- Replies {0, 1 if it had not ended, how much is lent, now}.
local id, late = ARGV[1], tonumber(ARGV[2])
local holders = redis.pcall('ZCARD', KEYS[1])
if type(holders) == 'table' then return failed(holders, 1) end
local used = redis.pcall('HGET', KEYS[2], 'used')
if type(used) == 'table' then return failed(used, 2) end
if (used and not number(used)) or (not used and holders > 0) then return unreadable(2) end
used = tonumber(used or 0)
local ends = redis.call('ZSCORE', KEYS[1], id)
if not ends and not late then return {0, 0, used, now} end
if ends then
  local weight = weighs(redis.call('HGET', KEYS[2], id))
  if not weight then return unreadable(2) end
  redis.call('ZREM', KEYS[1], id)
  redis.call('HDEL', KEYS[2], id)
  used, holders = used - weight, holders - 1
end
if holders == 0 then used = 0 end
if late then
  -- In its place there is one of nothing: who asks for it finds that lent.
  redis.call('ZADD', KEYS[1], whole(now + late), id)
  redis.call('HSET', KEYS[2], id, '0:0', 'used', whole(used))
  local ms = whole(math.ceil(late / 1000) + 1)
  redis.call('PEXPIRE', KEYS[1], ms)
  redis.call('PEXPIRE', KEYS[2], ms)
elseif holders == 0 then
  redis.call('DEL', KEYS[2])
else
  redis.call('HSET', KEYS[2], 'used', whole(used))
end
return {0, ends and tonumber(ends) > now and 1 or 0, used, now}
