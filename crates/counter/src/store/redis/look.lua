-- What takes nothing: how accounts stand, what a slot keeps, which amount is set, and the sweeper's visit.
--
-- ARGV: standings, number, and for each: name, kind, span, amount, burst
--       list
--       set, name, amount or -1
--       sweep
-- Answers: leases ended, and
--   standings: four numbers for each
--   list: name, kind, span, amount, burst, amount set or -1, four numbers for each; kind is -1 where no charge has
--         come yet
--   sweep: open holds
local what = ARGV[1]

sweep()
local answer = { leases_ended }

if what == 'standings' then
  for i = 1, tonumber(ARGV[2]) do
    local at = 2 + (i - 1) * 5
    local limit = {
      kind = tonumber(ARGV[at + 2]), span = tonumber(ARGV[at + 3]), amount = tonumber(ARGV[at + 4]),
      burst = tonumber(ARGV[at + 5]),
    }
    limit.amount = amount_set(ARGV[at + 1]) or limit.amount
    put_standing(answer, as_of(ARGV[at + 1], limit), now)
  end
elseif what == 'list' then
  local fields = redis.call('HGETALL', BOOK)
  local names, set = {}, {}
  for i = 1, #fields, 2 do
    local kind, name = string.byte(fields[i]), string.sub(fields[i], 2)
    if kind == 97 then
      names[name] = true
    elseif kind == 111 then
      names[name], set[name] = true, tonumber(fields[i + 1])
    end
  end
  for name in pairs(names) do
    local a = account(name)
    local limit = { kind = FIXED, span = 1, amount = 0, burst = NONE }
    if a then limit = { kind = a.kind, span = a.span, amount = a.amount, burst = a.burst } end
    limit.amount = set[name] or limit.amount
    local n = #answer
    answer[n + 1], answer[n + 2], answer[n + 3], answer[n + 4] = name, limit.kind, limit.span, limit.amount
    answer[n + 5], answer[n + 6] = limit.burst, set[name] or NONE
    put_standing(answer, as_of(name, limit), now)
  end
elseif what == 'set' then
  local name, amount = ARGV[2], tonumber(ARGV[3])
  local was = redis.call('HEXISTS', BOOK, 'o' .. name)
  if amount == NONE then
    meta.set = meta.set - redis.call('HDEL', BOOK, 'o' .. name)
  else
    redis.call('HSET', BOOK, 'o' .. name, string.format('%d', amount))
    meta.set = meta.set + 1 - was
  end
  meta_changed = true
elseif what == 'sweep' then
  local open = 0
  if meta.indexed == 1 then
    -- Those whose lease ended within the hour are counted as well: looking at each would take too long.
    open = redis.call('ZCARD', DUE)
  else
    for _, h in pairs(all_holds()) do
      if h.state == OPEN_CHARGE or h.state == OPEN_RELEASE then open = open + 1 end
    end
  end
  answer[2] = open
end
commit()
return answer
