-- The epoch of a server, or of a slot of a cluster, is the instant since which
-- its data is known to be whole. It belongs to a history of data: the server
-- takes another replication id when it starts and when it becomes the primary,
-- so a known one under another id means that something may be missing. (Its run
-- id would not do: an old primary that resynchronized and was promoted again has
-- the same one as before.)

-- history returns the replication id, or nil if the server does not return it.
local function history()
  local info = redis.pcall('INFO', 'replication')
  return type(info) == 'string' and string.match(info, 'master_replid:(%x+)') or nil
end

-- since is the epoch, in microseconds since 1970: before all time unless the mode
-- is strict. It is set by epoch.
local since = -math.huge

-- epoch reads the epoch from KEYS[i], if there is such a key. It returns nil, or what
-- the script must reply; if that is -4, an epoch has just begun: ask again.
local function epoch(i)
  local key = KEYS[i]
  if not key then return nil end
  local id = history()
  if not id then return {-3, now, i - 1} end
  local value = redis.pcall('GET', key)
  if type(value) == 'table' then return failed(value, i) end
  if value then
    local known, from = string.match(value, '^(%x+) (%d+)$')
    if not known or #from > 16 then return unreadable(i) end
    from = tonumber(from)
    if known == id and from == 0 then return nil end -- vouched for
    if known == id and from <= now then -- else the clock stepped back
      since = from
      return nil
    end
  end
  redis.call('SET', key, id .. ' ' .. whole(now))
  return {-4, now, i - 1}
end
