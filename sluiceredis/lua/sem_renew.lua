-- Prolongs leases of a semaphore.
--
-- KEYS     as those of sem_acquire
-- ARGV[1]  lease in microseconds
-- ARGV[2…] ids and then as many times weight:token
--
-- Replies {0, for each id 1 or, if the lease had ended, 0, or, if it may have been
-- lost and is now there again, 2; now}.
local lease = tonumber(ARGV[1])
local stop = epoch(4)
if stop then return stop end
local holders, before, lost = semaphore(lease)
if not holders then return before end
local count = (#ARGV - 1) / 2

-- Within a lease of the epoch nothing is lent, and who believes that he holds
-- something does: his lease is there, was lost, or was prolonged by more than
-- is known here.
local again, last, used = now < since + lease, false, before or (holders == 0 and 0 or nil)
if again then
  last = redis.pcall('GET', KEYS[3])
  if type(last) == 'table' then return failed(last, 3) end
  if last and not number(last) then return unreadable(3) end
end

local most = math.max(lease, restore(lost))
local reply, any, newest = {0}, false, tonumber(last or 0)
for i = 2, count + 1 do
  local ends = redis.call('ZSCORE', KEYS[1], ARGV[i])
  reply[i] = 0
  if again or (ends and tonumber(ends) > now) then
    -- What it weighs was lost, or may have been. It counts, once, from now on.
    if (not ends or not before) and redis.call('HEXISTS', KEYS[2], ARGV[i]) == 0 then
      local entry = ARGV[i + count] .. ':' .. whole(lease)
      local weight, token = lease_of(entry)
      redis.call('HSET', KEYS[2], ARGV[i], entry)
      used = used and used + weight
      if again then newest = math.max(newest, token) end
    end
    redis.call('ZADD', KEYS[1], whole(now + lease), ARGV[i])
    reply[i], any = again and 2 or 1, true
  end
end
if used and used ~= (before or 0) then weigh(used) end
if again and newest > tonumber(last or 0) then redis.call('SET', KEYS[3], whole(newest)) end
if any or #lost > 0 then keep(most) end
reply[#reply + 1] = now
return reply
