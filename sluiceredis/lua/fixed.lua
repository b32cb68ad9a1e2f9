-- A fixed window is when it began, in microseconds since 1970, and how many units
-- it has seen.

-- fixed_read returns the window of KEYS[i], or nil and what to reply.
--
-- ARGV[a]    the limit
-- ARGV[a+1]  the window in microseconds
-- ARGV[a+2]  aligned: where windows begin, in microseconds after multiples of it;
--            -1: anchored at the first call
local function fixed_read(i, a)
  local limit, window, offset = tonumber(ARGV[a]), tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2])
  local value = redis.pcall('GET', KEYS[i])
  if type(value) == 'table' then return nil, failed(value, i) end

  -- The window that would begin now.
  local start, used, clamped = now, 0, 0
  if offset >= 0 then start = now - math.fmod(now - offset, window) end
  local current = start
  if value then
    local from, count = string.match(value, '^(%d+) (%d+)$')
    if not from or #from > 16 or #count > 15 then return nil, unreadable(i) end
    local began, seen = tonumber(from), tonumber(count)
    -- A clock that was put back does not bring the allowance back, and shuts nobody
    -- out for longer than a window; of aligned ones the next may have begun.
    local latest = start
    if offset >= 0 then latest = start + window end
    if began > latest then began, clamped = start, 1 end
    if now < began + window then start, used = began, seen else clamped = 0 end
  end
  local f = {key = KEYS[i], limit = limit, clamped = clamped, taken = 0,
    start = start, ends = start + window, held = used, used = used, left = start + window - now}
  -- A window of which something may have been lost is full: the one in which the
  -- epoch began or, as an anchored one may have begun just before, one from then.
  if offset >= 0 and since >= current then
    f.used = math.max(used, limit)
  elseif offset < 0 and since + window > now then
    f.used, f.left = math.max(used, limit), since + window - now
  end
  return f
end

-- fixed_fits returns how many of count requests for n units fit, one after the
-- other.
local function fixed_fits(f, n, count)
  return math.max(0, math.min(count, math.floor((f.limit - f.used - f.taken) / n)))
end

-- fixed_write writes what was taken, and what is repaired as leaky_write does.
local function fixed_write(f, asked)
  if f.taken == 0 and not (f.clamped == 1 and asked) then return end
  redis.call('SET', f.key, whole(f.start) .. ' ' .. whole(f.held + f.taken), 'PX', whole(math.ceil((f.ends - now) / 1000) + 1))
end
