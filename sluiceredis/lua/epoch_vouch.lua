-- Notes that what the server holds is whole.
--
-- KEYS[1]  the epoch
--
-- Replies {0, now}.
local id = history()
if not id then return {-3, now, 0} end
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' then return failed(value, 1) end
if value then
  local since = string.match(value, '^%x+ (%d+)$')
  if not since or #since > 16 then return unreadable(1) end
end
redis.call('SET', KEYS[1], id .. ' 0')
return {0, now}
