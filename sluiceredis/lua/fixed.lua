-- A fixed window is when it began, in microseconds since 1970, how many units it has
-- seen, how long it is, its offset, and the largest limit that it was asked by. A key
-- holds one for each kind of window, of length and offset, that is not over: programs
-- with different windows share one name while a deploy changes the window. Each unit
-- is counted in all of them, and must fit into all of them.

-- fixed_ends returns when a window w is over, if that is not yet; what a clock that was
-- put back has made of it is repaired. It returns 1 as well if it was.
local function fixed_ends(w)
  -- The window that would begin now.
  w.current = now
  if w.offset >= 0 then w.current = now - math.fmod(now - w.offset, w.window) end
  -- A clock that was put back does not bring the allowance back, and shuts nobody
  -- out for longer than a window; of aligned ones the next may have begun.
  local latest, clamped = w.current, 0
  if w.offset >= 0 then latest = w.current + w.window end
  if w.start > latest then w.start, clamped = w.current, 1 end
  w.ends = w.start + w.window
  if now < w.ends then return w.ends, clamped end
end

-- fixed_seen returns how many units a window counts for, and when it is over. One of
-- which something may have been lost is full: the one in which the epoch began or, as
-- an anchored one may have begun just before, one from then.
local function fixed_seen(w)
  if w.offset >= 0 and since >= w.current then return math.max(w.used, w.limit), w.ends end
  if w.offset < 0 and since + w.window > now then return math.max(w.used, w.limit), since + w.window end
  return w.used, w.ends
end

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

  local own, others, clamped = nil, {}, 0
  for entry in string.gmatch(value or '', '([^;]*);?') do
    if entry == '' then break end
    local from, count, length, anchor, most = string.match(entry, '^(%d+) (%d+) (%d+) (%-?%d+) (%d+)$')
    if not from then -- as versions before wrote it
      from, count = string.match(entry, '^(%d+) (%d+)$')
      length, anchor, most = ARGV[a + 1], ARGV[a + 2], ARGV[a]
    end
    if not from or #from > 16 or #count > 16 or #length > 16 or #anchor > 16 or #most > 16 then return nil, unreadable(i) end
    local w = {start = tonumber(from), used = tonumber(count), window = tonumber(length), offset = tonumber(anchor),
      limit = tonumber(most)}
    if w.window == 0 then return nil, unreadable(i) end
    local ends, repaired = fixed_ends(w)
    if ends then
      clamped = math.max(clamped, repaired)
      if w.window == window and w.offset == offset then own = w else others[#others + 1] = w end
    end
  end
  if value and not own and #others == 0 and not string.find(value, '^%d+ %d+') then return nil, unreadable(i) end

  local fresh = not own
  if fresh then
    own = {start = 0, used = 0, window = window, offset = offset, limit = 0}
    fixed_ends(own)
    own.start, own.ends = own.current, own.current + window
    for _, w in ipairs(others) do -- whose units are in this one, too
      if w.start >= own.start then own.used = math.max(own.used, w.used) end
    end
  end
  local f = {key = KEYS[i], limit = limit, clamped = clamped, taken = 0, own = own, others = others, fresh = fresh, start = own.start, held = own.used}
  local most = own.limit
  own.limit = limit
  local used, ends = fixed_seen(own)
  own.limit = math.max(most, limit)
  -- The own window is as full as leaves the room that the others have.
  for _, w in ipairs(others) do
    local seen, till = fixed_seen(w)
    if limit - used > w.limit - seen then used, ends = limit - (w.limit - seen), till end
  end
  f.used, f.left = used, ends - now
  return f
end

-- fixed_fits returns how many of count requests for n units fit, one after the
-- other.
local function fixed_fits(f, n, count)
  return math.max(0, math.min(count, math.floor((f.limit - f.used - f.taken) / n)))
end

-- fixed_write writes what was taken, and what is repaired as leaky_write does. A
-- window that was refused because of others is written as well: while it is asked
-- for, it holds those up, too. Otherwise the largest would leave it nothing.
local function fixed_write(f, asked)
  local repairs = f.clamped == 1 or f.fresh and #f.others > 0
  if f.taken == 0 and not f.back and not (repairs and asked) then return end
  f.own.taken = f.taken
  local text, last = {}, 0
  table.insert(f.others, 1, f.own)
  for i, w in ipairs(f.others) do
    text[i] = whole(w.start) .. ' ' .. whole(w.used + (w.taken or f.taken)) .. ' ' .. whole(w.window) .. ' ' .. whole(w.offset) .. ' ' .. whole(w.limit)
    last = math.max(last, w.ends)
  end
  redis.call('SET', f.key, table.concat(text, ';'), 'PX', whole(math.ceil((last - now) / 1000) + 1))
end

-- fixed_add has so many units added to a window without asking, or taken out if
-- negative that were admitted so many microseconds ago, at most. It returns how
-- many.
local function fixed_add(f, delta, age)
  local function added(w)
    -- What was admitted in a window that is over must not be taken off this one.
    if delta < 0 and now - tonumber(age) < w.start then return 0 end
    return math.max(0, math.min(w.used + delta, 1000000000000000)) - w.used
  end
  for _, w in ipairs(f.others) do
    w.taken = added(w)
    f.back = f.back or w.taken ~= 0
  end
  f.taken = added(f.own)
  return math.abs(f.taken)
end

kinds.fixed = {args = 3, tells = {'clamped', 'used', 'left'}, read = fixed_read, fits = fixed_fits, write = fixed_write, add = fixed_add}
