-- Prolongs leases of a semaphore.
--
-- KEYS     as those of sem_acquire
-- ARGV[1]  lease in microseconds
-- ARGV[2…] ids and then, in strict mode, as many times weight:token
--
-- Replies {0, for each id 1 or, if the lease had ended, 0, or, if it may have been
-- lost and is now there again, 2; now}.
local lease = tonumber(ARGV[1])
local stop = epoch(4)
if stop then return stop end
local holders = redis.pcall('ZCARD', KEYS[1])
if type(holders) == 'table' then return failed(holders, 1) end
local used = redis.pcall('HGET', KEYS[2], 'used')
if type(used) == 'table' then return failed(used, 2) end
local count = #ARGV - 1
if KEYS[4] then count = count / 2 end

-- Within a lease of the epoch nothing is lent, and who believes that he holds
-- something does: his lease is there, was lost, or was prolonged by more than
-- is known here.
local again = now < since + lease
local last = false
if again then
  last = redis.pcall('GET', KEYS[3])
  if type(last) == 'table' then return failed(last, 3) end
  if (used and not number(used)) or (not used and holders > 0) then return unreadable(2) end
  if last and not number(last) then return unreadable(3) end
end

local reply, any, restored, newest = {0}, false, 0, tonumber(last or 0)
for i = 2, count + 1 do
  local ends = redis.call('ZSCORE', KEYS[1], ARGV[i])
  if again and not ends then
    local entry = ARGV[i + count]
    redis.call('HSET', KEYS[2], ARGV[i], entry)
    restored = restored + weighs(entry)
    newest = math.max(newest, tonumber(string.match(entry, ':(%d+)$')))
  end
  if again or (ends and tonumber(ends) > now) then
    redis.call('ZADD', KEYS[1], whole(now + lease), ARGV[i])
    reply[i], any = again and 2 or 1, true
  else
    reply[i] = 0
  end
end
if restored > 0 then
  redis.call('HSET', KEYS[2], 'used', whole(tonumber(used or 0) + restored))
  redis.call('SET', KEYS[3], whole(newest))
end
if any then
  local ms = whole(math.ceil(lease / 1000) + 1)
  redis.call('PEXPIRE', KEYS[1], ms)
  redis.call('PEXPIRE', KEYS[2], ms)
end
reply[#reply + 1] = now
return reply
