-- Prolongs leases of a semaphore.
--
-- KEYS     as the first two of sem_acquire
-- ARGV[1]  lease in microseconds
-- ARGV[2…] ids
--
-- Replies {0, for each id 1 or, if the lease had ended, 0; now}.
local lease = tonumber(ARGV[1])
local holders = redis.pcall('ZCARD', KEYS[1])
if type(holders) == 'table' then return failed(holders, 0) end
local used = redis.pcall('HEXISTS', KEYS[2], 'used')
if type(used) == 'table' then return failed(used, 1) end
local reply, any = {0}, false
for i = 2, #ARGV do
  local ends = redis.call('ZSCORE', KEYS[1], ARGV[i])
  if ends and tonumber(ends) > now then
    redis.call('ZADD', KEYS[1], whole(now + lease), ARGV[i])
    reply[i], any = 1, true
  else
    reply[i] = 0
  end
end
if any then
  local ms = whole(math.ceil(lease / 1000) + 1)
  redis.call('PEXPIRE', KEYS[1], ms)
  redis.call('PEXPIRE', KEYS[2], ms)
end
reply[#reply + 1] = now
return reply
